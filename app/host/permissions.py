"""Permissions of an installation's folders and files: protect them, and report open ones.

Only their owner can write to them, whatever the umask. Only the owner can read files and folders
with one of Penstock's names (``OWN``).
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import stat
from pathlib import Path

#: The bits of a mode that let users other than the owner write.
OTHERS_WRITE = 0o022
#: The bits that let users other than the owner do anything.
OTHERS = 0o077
#: Names of Penstock's files in a state folder, in addition to the ledger's.
OWN = ("backups", "broker", "checkpoints", "flower.password", "key", "reports")
#: Folders that a state folder has from its first use on.
FIRST = ("run", "logs")
#: Files for which it matters that others may have read them, and what to do then.
SECRETS = {
    "key": "who has read it can sign tasks, which workers run. To change it take all services down,"
    " remove it and the key penstock:installation in the broker (of the private one the folder"
    " broker), and start again. New checkpoints then lie in another folder, and the old ones are"
    " read where they are",
    "flower.password": "to change it end Flower and remove it: a new one is made",
}


class LedAway(Exception):
    """Raised if a link is in the place of a file or folder of Penstock."""


class OwnedByOther(Exception):
    """Raised if a folder, or a link on the way to it, belongs to another user."""


def close(home: Path, *inner: Path) -> str | None:
    """Let only the owner write to the folder ``home`` and enter the ``inner`` folders in it.

    Let only the owner read files there with one of Penstock's names. Returns words about the
    permissions that were too open, or None. Raises OwnedByOther as ``check`` does.
    """
    check(home, *inner)
    for folder in inner:
        if _mode(folder) != 0o700:
            folder.chmod(0o700)
    inside = [*home.iterdir()]
    loose = [path for path in (home, *inside) if path.name not in SECRETS and _is_loose(path)]
    warnings = []
    if home.stat().st_uid != os.geteuid():
        # A container's volume: it belongs to this process's group.
        if _mode(home) & 0o002:
            warnings = [f"others can write to {home}: its owner, root, has to forbid it"]
    elif loose:
        words = "that is forbidden now, and what they may have left there is not known"
        warnings = [f"others could write to {loose[0]} (mode {_mode(loose[0]):04o}): {words}"]
    for path in inside:
        own = path.name in OWN or path.name.startswith("ledger.db")
        mode = _closed(path) if own else None
        if mode is not None and path.name in SECRETS:
            why = SECRETS[path.name]
            warnings.append(f"{path} was open to others (mode {mode:04o}) and may be known: {why}")
    if loose and home.stat().st_uid == os.geteuid():
        _tighten(home)
    return "; ".join(warnings) or None


def check(home: Path, *inner: Path) -> None:
    """Raise OwnedByOther if an existing folder, or a link to ``home``, is another user's."""
    for path in (home, *home.parents):
        if path.is_symlink():
            _check_owner(path, path.lstat())
    for folder in (home, *inner):
        with contextlib.suppress(FileNotFoundError):
            _check_owner(folder, folder.stat())


def check_new(home: Path) -> None:
    """Raise LedAway if a new state folder has links in the places of Penstock's files.

    Another user who can write to the folder could use such links to have Penstock overwrite files
    elsewhere or change their permissions. Once the folder is in use, only its owner can write to
    it and make links there.
    """
    run = home / "run"
    if not home.exists() or (run.is_dir() and not run.is_symlink()):
        return
    for path in home.iterdir():
        if path.name in (*OWN, *FIRST) or path.name.startswith("ledger.db"):
            for part in itertools.chain((path,), path.rglob("*")):  # it enters no link
                if part.is_symlink():
                    raise LedAway(f"{part} is a link to {part.readlink()}")


def unusable(error: OSError, home: Path) -> str | None:
    """Say what to do about a file in ``home`` that ``error`` names; None for any other file."""
    filename = error.filename2 or error.filename
    if not isinstance(filename, (str, bytes, os.PathLike)):
        return None
    path = os.fsdecode(filename)
    if not Path(path).is_relative_to(home):
        return None
    if is_full(error):
        return f"{path} cannot be written: the disk is full. Make room"
    return (
        f"{path} cannot be used: {error.strerror}. It is Penstock's own: move away what is in its"
        " place, or give it back to this user"
    )


def is_full(error: OSError) -> bool:
    """Return True if the disk is full, or this user's quota is."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def forbid_others_to_write() -> None:
    """Keep files that this process or a child makes from being writable by others."""
    os.umask(os.umask(OTHERS_WRITE) | OTHERS_WRITE)


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def _closed(path: Path) -> int | None:
    """Let only the owner, if it is this user, access ``path``; return its mode if it was open."""
    try:
        status = path.lstat()
        folder = stat.S_ISDIR(status.st_mode)
        is_own = status.st_uid == os.geteuid() and (folder or stat.S_ISREG(status.st_mode))
        if not is_own or not status.st_mode & OTHERS:
            return None
        path.chmod(0o700 if folder else 0o600)
    except FileNotFoundError:  # removed since it was listed
        return None
    return stat.S_IMODE(status.st_mode)


def _is_loose(path: Path) -> bool:
    """Return True if others can write to ``path``, which is this user's. Follows no link."""
    try:
        status = path.lstat()
    except FileNotFoundError:  # removed since it was listed
        return False
    if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
        return False
    return bool(status.st_mode & OTHERS_WRITE) and status.st_uid == os.geteuid()


def _tighten(home: Path) -> None:
    """Forbid others to write to ``home`` and to this user's files and folders in it."""
    for folder, _, files in os.walk(home):
        for path in (Path(folder), *(Path(folder, name) for name in files)):
            if _is_loose(path):
                with contextlib.suppress(FileNotFoundError):
                    path.chmod(_mode(path) & ~OTHERS_WRITE)


def _check_owner(path: Path, found: os.stat_result) -> None:
    """Raise OwnedByOther if ``path`` is another user's. Root's files pass: root can do anything."""
    if found.st_uid not in (os.geteuid(), 0):
        raise OwnedByOther(f"{path} belongs to user {found.st_uid}")
