"""The batches of a node's trainers, as files in memory that all of these trainers can open.

Theory of operation. A batch is one file, written under another name and then renamed, so that no
reader sees half of it. Its name identifies all that determines its bits. A trainer that is about to
read a batch of the data set marks the batch's name (``claim``), so that no other trainer reads it
at the same time. If a trainer dies, its marks only make other trainers wait a little. A file stays
after a trial has read it, since other trials may still need it. The oldest files are removed if
there are too many bytes. When a study ends, all its files are removed, including those of trainers
that died: the names of its files begin with its ``token``.

A file contains a description in JSON and the bytes of the tensors; nothing is unpickled. A tensor
is read into new memory of torch's own, aligned like any other tensor, so that results computed with
it do not depend on its source.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

from ...tasks.system.tensor_bytes import bytes_of

#: The files may take 1 / ``PART`` of the bytes that ``capacity`` gives, or of the file system's if
#: those are fewer. The users' loader workers need the same file system.
PART = 8
#: Seconds for which a trainer counts as a reader after it has announced itself.
FRESH = 30.0
#: Number of files written between two checks of the files' total bytes.
_LOOK_EVERY = 8
_MARK, _READER = ".claim", ".reader"
_HEADER = 8
_PLAIN = (str, int, float, bool, type(None))


class NodeCache:
    """One trainer's view of the node's batches. It seems empty if the folder cannot be used."""

    def __init__(self, folder: Path, capacity: Callable[[], int], reader: str) -> None:
        """Set the folder; nothing is opened yet.

        Args:
            folder: The node's folder.
            capacity: Returns a number of bytes, an eighth of which may be used in ``folder``.
            reader: This trainer's name, unique on the node.
        """
        self._folder = folder
        self._capacity = capacity
        self._reader = reader
        self._written = self._most = 0

    def open(self) -> bool:
        """Create the folder if needed; return True if it exists and is this user's alone."""
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            status, system = self._folder.lstat(), os.statvfs(self._folder)
        except OSError:
            return False
        self._most = min(self._capacity(), system.f_blocks * system.f_frsize) // PART
        return self._folder.is_dir() and status.st_uid == os.getuid() and not status.st_mode & 0o077

    def others(self, group: str) -> bool:
        """Announce that this trainer reads ``group``; return True if another trainer does."""
        own = f"{group}.{self._reader}{_READER}"
        before = time.time() - FRESH
        has_others = False
        with suppress(OSError):
            (self._folder / own).touch(mode=0o600)
            for path in self._folder.glob(f"{group}.*{_READER}"):
                with suppress(OSError):
                    has_others = has_others or (path.name != own and path.stat().st_mtime > before)
        return has_others

    def forget(self, study: str) -> None:
        """Remove all files of a study that has ended, whichever trainer wrote them."""
        with suppress(OSError):
            for path in self._folder.glob(f"{token(study)}*"):
                self._remove(path.name)

    def find(self, name: str) -> tuple[Any] | None:
        """Return a tuple with the batch of this name (which may be None); None if it is missing."""
        try:
            with (self._folder / name).open("rb", buffering=0) as file:
                return (_read(file),)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError):
            self._remove(name)
            return None

    def has(self, name: str) -> bool:
        return (self._folder / name).exists()

    def claim(self, name: str) -> bool:
        """Mark the batch as read by this trainer; return False if another trainer reads it."""
        try:
            os.close(os.open(self._folder / (name + _MARK), os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            return False
        except OSError:
            pass  # for example no space: then the batch is read for this trainer alone
        return True

    def release(self, name: str) -> None:
        """Remove this trainer's mark of the batch."""
        self._remove(name + _MARK)

    def put(self, name: str, batch: Any) -> None:
        """Write a batch, which must be one that ``can_be_put``, for other trainers to find.

        The batch is not changed, and no reference to it is kept. A batch is not written if it is so
        large that only a few like it would fit.
        """
        unfinished = self._folder / f"{name}.{self._reader}"
        try:
            with unfinished.open("xb", buffering=0) as file:
                _write(file, batch, self._most // _LOOK_EVERY)
            unfinished.rename(self._folder / name)
        except OSError:
            with suppress(OSError):
                unfinished.unlink()
        self._written += 1
        if self._written % _LOOK_EVERY == 0:
            self._make_space()

    def _make_space(self) -> None:
        files: list[tuple[int, Path, int]] = []
        for path in self._folder.iterdir():
            with suppress(OSError):
                status = path.stat()
                files.append((status.st_mtime_ns, path, status.st_size))
        bytes_there = sum(size for _, _, size in files)
        for _, path, size in sorted(files):
            if bytes_there <= self._most:
                break
            self._remove(path.name)
            bytes_there -= size

    def _remove(self, name: str) -> None:
        with suppress(OSError):
            (self._folder / name).unlink()


def token(study: str) -> str:
    """Return the beginning of the names of a study's files."""
    return hashlib.sha256(study.encode()).hexdigest()[:16]


def can_be_put(batch: Any) -> bool:
    """Return True if other trainers would find a batch with the same types and bits."""
    if type(batch) is Tensor:
        plain = batch.device.type == "cpu" and batch.layout == torch.strided
        return plain and batch.is_contiguous() and not batch.requires_grad
    if type(batch) in (list, tuple):
        return all(map(can_be_put, batch))
    if type(batch) is dict:
        return all(type(name) is str and can_be_put(each) for name, each in batch.items())
    return type(batch) in _PLAIN


def digest(batch: Any) -> str:
    """Return a digest that is equal for batches with the same bits."""
    tensors: list[Tensor] = []
    hasher = hashlib.sha256(json.dumps(_described(batch, tensors)).encode())
    for each in tensors:
        hasher.update(bytes_of(each).numpy().data)
    return hasher.hexdigest()


def _write(file: BinaryIO, batch: Any, at_most: int) -> None:
    tensors: list[Tensor] = []
    header = json.dumps(_described(batch, tensors)).encode()
    if len(header) + sum(each.nbytes for each in tensors) > at_most:
        raise OSError("it is too large")
    file.write(len(header).to_bytes(_HEADER, "little") + header)
    for each in tensors:
        if each.nbytes and file.write(bytes_of(each).numpy().data) < each.nbytes:
            raise OSError("no space is left")


def _described(batch: Any, tensors: list[Tensor]) -> Any:
    """Return a description of the batch for JSON, and add its tensors to ``tensors``."""
    if type(batch) is Tensor:
        tensors.append(batch)
        return {"x": [str(batch.dtype).removeprefix("torch."), list(batch.shape)]}
    if type(batch) in (list, tuple):
        return {type(batch).__name__[0]: [_described(each, tensors) for each in batch]}
    if type(batch) is dict:
        return {"d": [[name, _described(each, tensors)] for name, each in batch.items()]}
    return {"v": batch}


def _read(file: BinaryIO) -> Any:
    size = int.from_bytes(file.read(_HEADER), "little")
    return _made(json.loads(file.read(size)), file)


def _made(described: Any, file: BinaryIO) -> Any:
    ((kind, of),) = described.items()
    if kind == "x":
        tensor = torch.empty(of[1], dtype=getattr(torch, of[0]))
        into = bytes_of(tensor).numpy().data
        if tensor.nbytes and file.readinto(into) < tensor.nbytes:  # type: ignore[attr-defined]
            raise ValueError("the file has been cut")
        return tensor
    if kind == "d":
        return {name: _made(each, file) for name, each in of}
    if kind in ("l", "t"):
        values = [_made(each, file) for each in of]
        return values if kind == "l" else tuple(values)
    return of
