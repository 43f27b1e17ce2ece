"""Identify an installation: its signing key, and its mark in the checkpoint store.

Every node can write to ``file:///somewhere``, but on another machine that is another disk. So the
scheduler leaves a mark in its store. A node that does not find the mark, or cannot write in the
same folder, is refused before it takes work.
"""

from __future__ import annotations

import os
import secrets
from hashlib import sha256
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from ...base.errors import BackendError, UsageError
from ...base.urls import hide_password
from ...tasks.checkpoints.stores import make_folder, open_store, unusable
from ..common.timeouts import within
from . import presence

if TYPE_CHECKING:
    from ..host.settings import Settings

#: Seconds, for all steps together, after which a store counts as not answering. They include the
#: time for loading the store's library.
STORE_TIMEOUT = 20.0


def installation_key(settings: Settings) -> bytes:
    """Return the key that signs this installation's messages.

    The key is made on first use, in a file that only its owner can read. Raises UsageError if the
    file has no key in it.
    """
    path = settings.home / "key"
    if not path.exists():
        temporary = path.with_suffix(f".{os.getpid()}")
        temporary.touch(mode=0o600)
        temporary.write_text(secrets.token_hex(32))
        temporary.rename(path)
    key = known_key(settings)
    if key is None:
        raise UsageError(
            f"{path} is damaged: it should hold a key in hexadecimal digits. Put a copy of it back,"
            " or remove it: a new one is made, and earlier checkpoints are read where they are"
        )
    return key


def known_key(settings: Settings) -> bytes | None:
    """Return this installation's key; None if it has none yet, or if its file is damaged."""
    try:
        return presence.key_of((settings.home / "key").read_text("ascii", "replace"))
    except FileNotFoundError:
        return None


def mark(url: str, key: bytes) -> None:
    """Leave the mark of the installation with signing key ``key`` in the store at ``url``.

    Raises BackendError if the store cannot be written.
    """
    try:
        files, root = open_store(url)
        make_folder(files, root)
        files.pipe_file(_mark(root, key), b"the checkpoint store of a Penstock installation\n")
    except Exception as error:  # anything the store's library may raise
        raise unusable(url, error) from error


def check(url: str, key: bytes) -> None:
    """Check that the store at ``url`` has the installation's mark and can be written and read.

    Raises BackendError with the reason, within ``STORE_TIMEOUT`` seconds.
    """

    def attempt() -> bool:
        files, root = open_store(url)
        has_mark = bool(files.exists(_mark(root, key)))
        if has_mark:
            _probe(files, f"{root}/probe-{uuid4().hex}")
        return has_mark

    try:
        has_mark = within(STORE_TIMEOUT, "store-check", attempt)
    except Exception as error:  # anything the store's library may raise
        raise unusable(url, error) from error
    if not has_mark:
        raise BackendError(
            f"the checkpoint store {hide_password(url)}, seen from this node, is not the "
            "installation's: mount the same folder here, or set PENSTOCK_STORE to a URL that every "
            "node reaches"
        )


def probe(url: str) -> bool:
    """Check that the store at ``url`` can be written and read; return True if its folder exists.

    If the folder does not exist, the nearest existing folder above it is tried. Leaves nothing
    behind. Raises BackendError with the reason, within ``STORE_TIMEOUT`` seconds.
    """

    def attempt() -> bool:
        files, root = open_store(url)
        folder = root
        while folder.startswith("/") and not files.exists(folder):
            folder = folder.rpartition("/")[0]
        try:
            _probe(files, f"{folder}/probe-{uuid4().hex}")
        except OSError as error:
            if folder == root:
                raise
            why = error.strerror or str(error)
            raise OSError(f"it cannot be created in {folder or '/'}: {why}") from error
        return folder == root

    try:
        return within(STORE_TIMEOUT, "store-probe", attempt)
    except Exception as error:  # anything the store's library may raise
        raise unusable(url, error) from error


def checkpoints(url: str, key: bytes) -> str:
    """Return the URL of this key's folder of checkpoints in the store at ``url``.

    Files that the ledger does not name are deleted from this folder. So each installation has a
    folder of its own, even if several use the same URL.
    """
    return f"{url.rstrip('/')}/checkpoints-{_name(key)}"


def _mark(root: str, key: bytes) -> str:
    return f"{root}/installation-{_name(key)}"


def _name(key: bytes) -> str:
    # Not the key itself: a user who can read checkpoints must not be able to sign tasks.
    return sha256(b"mark" + key).hexdigest()[:16]


def _probe(files: Any, path: str) -> None:
    token = uuid4().bytes
    try:
        files.pipe_file(path, token)
        if files.cat_file(path) != token:
            raise OSError("what was read back differs from what was written")
    finally:
        if files.exists(path):
            files.rm_file(path)
