"""An encoder's activations of whole data sets: in memory, in a file, or computed when needed.

Theory of operation. All three give the bits of the canonical blocks (``blocks``), so a trial's
results do not depend on the space available. Activations that fit into memory become a
``TensorDataset``. Those in a file are mapped, and become a ``TensorDataset``, too. Trials read both
like any data in memory. If activations fit into neither, their blocks are computed when a batch
needs them, which is slow but gives the same bits.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import ref

import torch
from torch import Tensor
from torch.utils.data import Dataset, TensorDataset

from ...base.errors import TrialFailed
from ...tasks.contracts.rng import key
from ...tasks.training.data import Rows
from .blocks import BLOCK, Blocks, Columns, same_blocks
from .frozen_encoder import FrozenEncoder, tensor_digest

if TYPE_CHECKING:
    from .kept_files import Extent, KeptFiles


@dataclass(slots=True)
class _Known:
    """A data set, the encoded data set while it is referenced, and its bytes in memory."""

    plain: Dataset[Any]
    encoded: ref[Dataset[Any]]
    bytes: int
    #: The encoded data set, if it is kept in memory for later trials.
    held: Dataset[Any] | None


class Activations:
    """The encoded data sets of one trainer."""

    def __init__(self, capacity: Callable[[int], int], files: KeptFiles | None) -> None:
        """Start without data sets.

        Args:
            capacity: A function from the bytes now in memory to the bytes that may be kept.
            files: Files for activations that do not fit into memory, or None.
        """
        self._capacity = capacity
        self._files = files
        #: Data sets by their identity and the encoder's digest, in order of last use.
        self._known: dict[tuple[int, str], _Known] = {}
        #: Number of data sets that were encoded here.
        self.encodings = 0

    def bytes(self) -> int:
        """Return the bytes of encoded data sets in memory, including those that only trials use."""
        dropped = [name for name, entry in self._known.items() if entry.encoded() is None]
        for name in dropped:
            del self._known[name]
        return sum(entry.bytes for entry in self._known.values())

    def find(self, data: Dataset[Any], encoder: FrozenEncoder) -> Dataset[Any] | None:
        """Return ``data`` encoded by ``encoder``, or None if it has not been encoded."""
        name = id(data), encoder.digest
        if (entry := self._known.pop(name, None)) is None or (encoded := entry.encoded()) is None:
            return None
        entry.held = encoded
        self._known[name] = entry
        return encoded

    def of(
        self, data: Dataset[Any], encoder: FrozenEncoder, *, in_memory: bool = True
    ) -> Dataset[Any]:
        """Return ``data`` encoded. Its examples are tuples that begin with activations.

        If ``in_memory``, the result may be kept in memory. Raises ``TrialFailed`` if activations
        cannot be assigned to single examples, and any error of the user's code.
        """
        blocks = Blocks(data, encoder)
        first = blocks.encoded(0)
        blocks.check_steady()
        extents = [(each.dtype, (blocks.examples, *each.shape[1:])) for each in first]
        size = sum(_bytes(each) for each in extents)
        used_bytes, tensors = 0, None
        if in_memory and self._make_space(size):
            tensors, used_bytes = _in_memory(blocks, first, extents), size
        elif self._files is not None:
            tensors = _in_file(self._files, blocks, extents)
        encoder.check_unchanged()
        encoded: Dataset[Any]
        if tensors is not None:
            encoded = TensorDataset(*tensors)
        else:
            used_bytes = self._free() if in_memory else 0
            encoded = ComputedAgain(blocks, used_bytes)
        self._known[id(data), encoder.digest] = _Known(data, ref(encoded), used_bytes, encoded)
        self.encodings += 1
        return encoded

    def release(self) -> None:
        """Drop the data sets that no trial uses."""
        for entry in self._known.values():
            entry.held = None
        self.bytes()  # this forgets data sets without references, and their plain data

    def _free(self) -> int:
        used_bytes = self.bytes()
        return max(0, self._capacity(used_bytes) - used_bytes)

    def _make_space(self, size: int) -> bool:
        """Drop the data sets unused for longest; return True if ``size`` bytes are then free."""
        for entry in list(self._known.values()):
            if size <= self._free():
                break
            entry.held = None
        return size <= self._free()


def outline(data: Dataset[Any], encoder: FrozenEncoder) -> Dataset[Any]:
    """Return a data set with the shapes of ``data`` encoded, but no memory for its examples."""
    blocks = Blocks(data, encoder)
    columns = [each[:1].expand(blocks.examples, *each.shape[1:]) for each in blocks.encoded(0)]
    return TensorDataset(*columns)


class ComputedAgain(Rows):
    """An encoded data set whose blocks are computed as they are needed.

    The last used blocks are kept in memory.
    """

    def __init__(self, blocks: Blocks, capacity: int) -> None:
        """Start without blocks. Up to ``capacity`` bytes are kept, and at least one block."""
        self._blocks = blocks
        self._capacity = capacity
        self._held: OrderedDict[int, Columns] = OrderedDict()
        self._bytes = 0

    def __len__(self) -> int:
        return self._blocks.examples

    def __getitem__(self, i: int) -> Columns:
        return tuple(column[0] for column in self.rows(torch.tensor([i])))

    def rows(self, indices: Tensor) -> Columns:
        of = indices // BLOCK
        result: list[Tensor] = []
        for i in sorted({*of.tolist()}):
            in_block = of == i
            columns = self._block(i)
            result = result or [each.new_empty(len(indices), *each.shape[1:]) for each in columns]
            for column, rows in zip(columns, result, strict=True):
                rows[in_block] = column[indices[in_block] % BLOCK]
        return tuple(result)

    def _block(self, i: int) -> Columns:
        if i not in self._held:
            self._held[i] = self._blocks.encoded(i)
            self._bytes += sum(each.nbytes for each in self._held[i])
            while self._bytes > self._capacity and len(self._held) > 1:
                _, evicted = self._held.popitem(last=False)
                self._bytes -= sum(each.nbytes for each in evicted)
        self._held.move_to_end(i)
        return self._held[i]


def _bytes(extent: Extent) -> int:
    dtype, shape = extent
    return dtype.itemsize * torch.Size(shape).numel()


def _in_memory(blocks: Blocks, first: Columns, extents: Sequence[Extent]) -> list[Tensor]:
    tensors = [torch.empty(shape, dtype=dtype) for dtype, shape in extents]
    for i, block in enumerate(_all_of(blocks, extents, first)):
        for whole, part in zip(tensors, block, strict=True):
            whole[i * BLOCK : i * BLOCK + len(part)] = part
    return tensors


def _in_file(files: KeptFiles, blocks: Blocks, extents: Sequence[Extent]) -> list[Tensor] | None:
    """Return the activations from a file named after their content. Write it if it is missing.

    Returns None if the file cannot be written. If the file exists, one of its blocks is computed
    again and compared, since the code of the encoder may have changed.
    """
    digest = hashlib.sha256(f"{blocks.encoder.digest} {BLOCK}".encode())
    for i in range(blocks.count):
        for each in blocks.plain(i):
            digest.update(tensor_digest(each))
    name = digest.hexdigest()
    if (tensors := files.find(name)) is not None:
        i = key("kept block", name) % blocks.count
        stored_block = tuple(each[i * BLOCK : (i + 1) * BLOCK] for each in tensors)
        if same_blocks(stored_block, blocks.encoded(i)):
            return tensors
        files.remove(name)
    return files.write(name, extents, _all_of(blocks, extents))


def _all_of(
    blocks: Blocks, extents: Sequence[Extent], first: Columns | None = None
) -> Iterator[Columns]:
    """Yield all blocks, which must have the shapes of ``extents``.

    ``first`` is block 0, if it is encoded already.
    """
    for i in range(blocks.count):
        block = first if i == 0 and first is not None else blocks.encoded(i)
        shapes = [(each.dtype, tuple(each.shape[1:])) for each in block]
        if shapes != [(dtype, shape[1:]) for dtype, shape in extents]:
            raise TrialFailed(
                "data", "encoder() needs examples that all have the shape of the first"
            )
        yield block
