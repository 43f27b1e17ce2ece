"""Files of tensors that are too large for memory and can be computed again if lost.

Theory of operation. A file's name identifies its content, so the trainers of a node share it. A
file is written under another name, and renamed once it is complete. A writer that is killed leaves
an unfinished file, which the next writer removes. A file is checked when it is opened, and read
through the page cache. It may be removed at any time: a process that has opened it can still read
it.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor

from ...tasks.system.tensor_bytes import bytes_of

#: A tensor's dtype and shape.
Extent = tuple[torch.dtype, tuple[int, ...]]
#: Size of the header (bytes). Each tensor begins at a multiple of it.
_PAGE = 4096
_SUFFIX, _UNFINISHED = ".activations", ".unfinished"
#: The files may take 1 / ``PART`` of the bytes that are free on the disk or already theirs.
PART = 10


class KeptFiles:
    """Files in a folder. If they exceed ``budget``, the least recently used are removed."""

    def __init__(self, folder: Path, budget: Callable[[int], int] | None = None) -> None:
        """Set the folder.

        ``budget`` is a function from the files' present bytes to the bytes that they may have. The
        default is a tenth of the sum of the present bytes and the free bytes of the disk.
        """
        self._folder = folder
        self._budget = budget or self._tenth

    def find(self, name: str) -> list[Tensor] | None:
        """Return the tensors of the file ``name``, or None. A damaged file is removed."""
        path = self._folder / (name + _SUFFIX)
        try:
            with path.open("rb") as file:
                header = json.loads(file.read(_PAGE).rstrip(b"\0"))
                tensors = _mapped(file, [_extent(each) for each in header["tensors"]])
                if header["digest"] != _digest(tensors):
                    raise ValueError  # noqa: TRY301 - treated like a file that cannot be read
            os.utime(path)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError):
            self.remove(name)
            return None
        return tensors

    def remove(self, name: str) -> None:
        """Remove the file ``name``, if there is one."""
        with suppress(OSError):
            (self._folder / (name + _SUFFIX)).unlink()

    def write(
        self, name: str, extents: Sequence[Extent], blocks: Iterable[Sequence[Tensor]]
    ) -> list[Tensor] | None:
        """Write tensors to the file ``name``, and return them as read back from the file.

        ``blocks`` yields the tensors piece by piece: each block has the next few rows of every
        tensor. Returns None if the file cannot be written, for example because the disk lacks the
        space. Errors that iterating over ``blocks`` raises are passed on.
        """
        unfinished = self._folder / f"{name}.{os.getpid()}{_UNFINISHED}"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            if not self._make_space(_end(extents)):
                return None
            file = unfinished.open("w+b")
        except OSError:
            return None
        try:
            with file:
                if not _fill(file, extents, blocks):
                    return None
                tensors = _mapped(file, extents)
                header = {"tensors": [_words(each) for each in extents], "digest": _digest(tensors)}
                file.seek(0)
                file.write(json.dumps(header).encode())
                file.flush()
                os.fsync(file.fileno())
                unfinished.rename(self._folder / (name + _SUFFIX))
                return tensors
        except OSError:
            return None
        finally:
            unfinished.unlink(missing_ok=True)

    def _make_space(self, size: int) -> bool:
        for unfinished in self._folder.glob("*" + _UNFINISHED):
            if not Path("/proc", unfinished.suffixes[-2][1:]).exists():
                unfinished.unlink(missing_ok=True)
        sizes: dict[Path, tuple[float, int]] = {}
        for path in self._folder.glob("*" + _SUFFIX):
            with suppress(OSError):
                sizes[path] = path.stat().st_mtime, path.stat().st_size
        used_bytes = sum(each for _, each in sizes.values())
        budget = self._budget(used_bytes)
        if size > budget:
            return False
        for path, (_, each) in sorted(sizes.items(), key=lambda item: item[1]):
            if used_bytes + size <= budget:
                break
            path.unlink(missing_ok=True)
            used_bytes -= each
        return True

    def _tenth(self, used_bytes: int) -> int:
        return (shutil.disk_usage(self._folder).free + used_bytes) // PART


def _fill(file: BinaryIO, extents: Sequence[Extent], blocks: Iterable[Sequence[Tensor]]) -> bool:
    """Write the tensors; return True if the disk had space for them."""
    at = [begin for begin, _ in _spans(extents)]
    for block in blocks:
        for i, tensor in enumerate(block):
            data = bytes_of(tensor).numpy().data
            try:
                file.seek(at[i])
                at[i] += file.write(data)
            except OSError:
                return False
    file.truncate(_end(extents))
    file.flush()
    return True


def _spans(extents: Sequence[Extent]) -> list[tuple[int, int]]:
    """Return the first byte of each tensor, and the byte after its end."""
    spans, end = [], 0
    for dtype, shape in extents:
        begin = -(-max(end, 1) // _PAGE) * _PAGE
        end = begin + dtype.itemsize * int(np.prod(shape, dtype=np.int64))
        spans.append((begin, end))
    return spans


def _end(extents: Sequence[Extent]) -> int:
    return _spans(extents)[-1][1]


def _mapped(file: BinaryIO, extents: Sequence[Extent]) -> list[Tensor]:
    """Return the tensors in a file. Their bytes are read only when they are needed."""
    flat = np.memmap(file, dtype=np.uint8, mode="r")
    if len(flat) < _end(extents):
        raise ValueError("the file has been cut")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the memory is read-only, and is never written to
        whole = torch.from_numpy(flat)
    pairs = zip(extents, _spans(extents), strict=True)
    return [whole[begin:end].view(dtype).view(shape) for (dtype, shape), (begin, end) in pairs]


def _digest(tensors: Iterable[Tensor]) -> str:
    digest = hashlib.sha256()
    for each in tensors:
        digest.update(bytes_of(each).numpy().data)
    return digest.hexdigest()


def _words(extent: Extent) -> list[Any]:
    return [str(extent[0]).removeprefix("torch."), list(extent[1])]


def _extent(words: Any) -> Extent:
    dtype = getattr(torch, words[0])
    if not isinstance(dtype, torch.dtype):
        raise TypeError(words[0])
    return dtype, tuple(map(int, words[1]))
