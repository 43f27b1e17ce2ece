"""Batches of a node's trainers, as files in memory that all of them can open.

Theory of operation. A batch is one file, written under another name and then renamed, so nobody
sees half of one. Its name says all that decides its bits. Who is about to read a batch of the data
set marks its name (``claim``), so that nobody else reads it at the same time; a mark whose trainer
has died only makes others wait a little. Nothing is removed when it was taken: nobody knows who
still comes to it. The oldest files go when there are too many bytes, and those of a study when it
is over: their names begin with what stands for it (``token``), also those of trainers that died.

A file holds a description in JSON and the bytes of the tensors; nothing is unpickled. A tensor that
is taken lies in fresh memory of torch's own, aligned as any other: what is computed with it must
not depend on where it came from.
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

#: Of the bytes that ``capacity`` gives, and of those that the file system has, this part may lie
#: there: loader workers of the users' have theirs beside.
PART = 8
#: Seconds for which a reader counts as present.
FRESH = 30.0
#: Files written between two looks at how many bytes there are.
_LOOK_EVERY = 8
_MARK, _READER = ".claim", ".reader"
_HEADER = 8
_PLAIN = (str, int, float, bool, type(None))


class NodeCache:
    """One trainer's view of the batches. Where they cannot be had or put, nothing is there."""

    def __init__(self, folder: Path, capacity: Callable[[], int], reader: str) -> None:
        """``capacity``: bytes, of which an eighth may lie in ``folder``.

        ``reader`` is this trainer's name, which no other one on the node has.
        """
        self._folder = folder
        self._capacity = capacity
        self._reader = reader
        self._written = self._most = 0

    def open(self) -> bool:
        """Whether the folder is there, and this user's alone."""
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            found, system = self._folder.lstat(), os.statvfs(self._folder)
        except OSError:
            return False
        self._most = min(self._capacity(), system.f_blocks * system.f_frsize) // PART
        return self._folder.is_dir() and found.st_uid == os.getuid() and not found.st_mode & 0o077

    def others(self, group: str) -> bool:
        """Say that this trainer reads batches of ``group``; whether another one has said so."""
        own = f"{group}.{self._reader}{_READER}"
        before = time.time() - FRESH
        found = False
        with suppress(OSError):
            (self._folder / own).touch(mode=0o600)
            for path in self._folder.glob(f"{group}.*{_READER}"):
                with suppress(OSError):
                    found = found or (path.name != own and path.stat().st_mtime > before)
        return found

    def forget(self, study: str) -> None:
        """The study is over: remove all that is there of it, whoever left it."""
        with suppress(OSError):
            for path in self._folder.glob(f"{token(study)}*"):
                self._remove(path.name)

    def find(self, name: str) -> tuple[Any] | None:
        """The batch of this name, or None. A tuple, since a batch may be None."""
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
        """Mark the batch as being read by this trainer. False: another one reads it."""
        try:
            os.close(os.open(self._folder / (name + _MARK), os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            return False
        except OSError:
            pass  # no space, say: then it is read for this trainer alone
        return True

    def release(self, name: str) -> None:
        """This trainer does not read the batch any more."""
        self._remove(name + _MARK)

    def put(self, name: str, batch: Any) -> None:
        """Let others have the batch, which is ``can_be_put``. It is not changed, nor kept.

        One is left out that is so large that there would be few.
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
                found = path.stat()
                files.append((found.st_mtime_ns, path, found.st_size))
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
    """What the names of a study's files begin with."""
    return hashlib.sha256(study.encode()).hexdigest()[:16]


def can_be_put(batch: Any) -> bool:
    """Whether a batch that is taken has all that this one has, and the same bits."""
    if type(batch) is Tensor:
        plain = batch.device.type == "cpu" and batch.layout == torch.strided
        return plain and batch.is_contiguous() and not batch.requires_grad
    if type(batch) in (list, tuple):
        return all(map(can_be_put, batch))
    if type(batch) is dict:
        return all(type(name) is str and can_be_put(each) for name, each in batch.items())
    return type(batch) in _PLAIN


def digest(batch: Any) -> str:
    """Equal for batches with the same bits."""
    tensors: list[Tensor] = []
    made = hashlib.sha256(json.dumps(_described(batch, tensors)).encode())
    for each in tensors:
        made.update(bytes_of(each).numpy().data)
    return made.hexdigest()


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
    """What JSON can say of the batch; its tensors are added to ``tensors``."""
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
        made = [_made(each, file) for each in of]
        return made if kind == "l" else tuple(made)
    return of
