"""Open a checkpoint store by its fsspec URL, and report the fault of a store that cannot be used.

An S3-compatible store (``s3://bucket/prefix``) takes endpoint and credentials from the places where
its library looks for them (``AWS_ENDPOINT_URL``, ``AWS_ACCESS_KEY_ID``, ``~/.aws``, fsspec's own
configuration), never from the URL. So no credentials travel in a message or are kept in the ledger.
"""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import Any

from ...base.errors import BackendError
from ...base.urls import hide_password
from ...base.wording import size_words

#: Bytes that a checkpoint must leave free on a local disk; and the same as a share of the disk,
#: which counts on small disks. Ledger and broker write there too, and a full disk stops them.
RESERVE = 1 << 30
RESERVE_SHARE = 0.05
#: The extra to install for a kind of store. The library's own advice may name another way.
EXTRAS = {"s3": "penstock[s3]", "s3a": "penstock[s3]"}


def open_store(url: str) -> tuple[Any, str]:
    """Return the fsspec file system for ``url``, and the path in it without a trailing slash.

    Raises ``BackendError`` if a library is missing, and any error that the library raises.
    """
    import fsspec.core

    try:
        files, path = fsspec.core.url_to_fs(url)
    except ImportError as error:
        scheme = url.partition("://")[0]
        extra = EXTRAS.get(scheme)
        how = f"pip install '{extra}'" if extra else f"install what fsspec needs for it ({error})"
        raise BackendError(
            f"the checkpoint store {hide_password(url)} needs a library: {how}"
        ) from error
    return files, str(path).rstrip("/")


def object_file(store: str, digest: str) -> str:
    """Return the path of the user's object with this digest in an installation's store."""
    return f"{store}/objects/{digest}"


def code_file(store: str, digest: str) -> str:
    """Return the path of the code by value with this digest in an installation's store."""
    return f"{store}/code/{digest}"


def make_folder(files: Any, path: str) -> None:
    """Make a folder, on file systems that have folders.

    A path without a leading slash begins with a bucket. A bucket needs no folders, and the library
    would create a bucket that does not exist, even one whose name is mistyped.
    """
    if path.startswith("/"):
        files.makedirs(path, exist_ok=True)


def is_local(files: Any) -> bool:
    """Return True if a file system is on this machine."""
    protocol = files.protocol
    return "file" in ((protocol,) if isinstance(protocol, str) else protocol)


def unusable(url: str, error: Exception) -> BackendError:
    """Return the error, without credentials, for a store or file that cannot be reached."""
    if isinstance(error, BackendError):
        return error
    return BackendError(
        f"the checkpoint store {hide_password(url)} cannot be used from this node: "
        f"{hide_password(str(error))}"
    )


def write_whole(uri: str, content: bytes | memoryview) -> None:
    """Write a file of the store so that readers see all of it or nothing.

    Raises any error that the store's library raises.
    """
    files, path = open_store(uri)
    make_folder(files, path.rpartition("/")[0])
    if is_local(files):
        write_synced(Path(path), content)
    else:
        files.pipe_file(path, bytes(content))


def write_synced(path: Path, content: bytes | memoryview) -> None:
    """Write a file so that readers see all of it or nothing. It is durable when this returns."""
    fresh = not path.parent.exists()
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(f".{os.getpid()}.tmp")  # the janitor knows such names
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)
    if fresh:
        _sync_folder(path.parent.parent)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def check_space(folder: Path, size: int) -> None:
    """Raise ``OSError`` if writing ``size`` bytes would leave less free than the reserve."""
    disk = shutil.disk_usage(folder)
    reserve = min(RESERVE, int(RESERVE_SHARE * disk.total))
    if disk.free - size < reserve:
        raise OSError(
            errno.ENOSPC,
            f"the disk of the checkpoint store is full: {size_words(reserve)} of its "
            f"{size_words(disk.total)} are kept free",
        )
