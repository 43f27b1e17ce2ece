"""The blocks of a step in buffers to send: one buffer per member, and in it one slot per block.

A block is a sum over shards (``tree_sum``). Its slot holds tensors ordered by dtype, so that two
slots are added in one operation per dtype. Each tensor is aligned as an allocator would align it,
since kernels may take another path for unaligned memory. In addition to the sums, a slot holds the
number of shards that used each parameter, and shard 0's counters.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import torch

from .tree_sum import Block

if TYPE_CHECKING:
    from torch import Tensor

#: Bytes to which tensors are aligned, as torch allocates them.
_ALIGNED = 64


class Wire:
    """The send buffer of one member, the receive buffer for all members, and the blocks in both."""

    def __init__(
        self,
        parameters: Sequence[Tensor],
        sums: Sequence[Tensor],
        counters: Sequence[Tensor],
        slots: int,
        width: int,
    ) -> None:
        """Allocate ``slots`` per member for ``width`` members, with tensors like the given ones."""
        self._n = len(parameters)
        device = sums[0].device
        flags = torch.zeros(self._n, dtype=torch.int32, device=device)
        layout = _Layout([*parameters, *sums, flags], counters)
        self.mine = torch.zeros(slots * layout.size, dtype=torch.uint8, device=device)
        self.all = torch.zeros(width * slots * layout.size, dtype=torch.uint8, device=device)
        self._ours = [layout.slot(part) for part in self.mine.chunk(slots)]
        slot = [layout.slot(part) for part in self.all.chunk(width * slots)]
        self._theirs = [slot[i : i + slots] for i in range(0, len(slot), slots)]
        self._flags = [[0] * self._n for _ in range(slots)]

    def put(self, slot: int, block: Block) -> None:
        """Copy a block of this member into its slot."""
        tensors, counters, _ = self._ours[slot]
        flags = [int(gradient is not None) for gradient in block.gradients]
        if flags != self._flags[slot]:
            self._flags[slot] = flags
            tensors[-1].copy_(torch.tensor(flags, dtype=torch.int32))
            torch._foreach_zero_(tensors[: self._n])
        gradients = [gradient for gradient in block.gradients if gradient is not None]
        targets = [tensor for tensor, flag in zip(tensors, flags, strict=False) if flag]
        torch._foreach_copy_(targets + tensors[self._n : -1], gradients + block.sums)
        if block.counters:
            torch._foreach_copy_(counters, block.counters)

    def block(self, rank: int, slot: int, span: tuple[int, int]) -> Block:
        """Return the block at ``span`` (first, count), which member ``rank`` sent in ``slot``."""
        _, counters, joined = self._theirs[rank][slot]
        return Block(*span, [], joined, counters)

    def root(self, rank: int) -> Block:
        """Return the block in slot 0 of ``rank``, to which all others must have been added."""
        tensors, counters, _ = self._theirs[rank][0]
        flags = tensors[-1].tolist()
        gradients = [t if n else None for t, n in zip(tensors, flags, strict=False)]
        return Block(0, 0, gradients, tensors[self._n : -1], counters)


class _Layout:
    """The layout of a slot of ``size`` bytes: the places of tensors like the given ones."""

    def __init__(self, summed: Sequence[Tensor], counters: Sequence[Tensor]) -> None:
        self._summed, self._counters = summed, counters
        self._offsets: dict[int, int] = {}
        self._ranges: list[tuple[torch.dtype, int, int]] = []
        self.size = 0
        for dtype in dict.fromkeys(tensor.dtype for tensor in summed):
            start = self.size
            self._lay(tensor for tensor in summed if tensor.dtype == dtype)
            self._ranges.append((dtype, start, self.size))
        self._lay(counters)

    def _lay(self, tensors: Iterable[Tensor]) -> None:
        for tensor in tensors:
            self._offsets[id(tensor)] = self.size
            self.size += -(-tensor.nbytes // _ALIGNED) * _ALIGNED

    def slot(self, memory: Tensor) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
        """Return views of ``memory``: tensors to sum, counters, and the sums joined by dtype."""
        return (
            [self._view(memory, tensor) for tensor in self._summed],
            [self._view(memory, tensor) for tensor in self._counters],
            [memory[start:end].view(dtype) for dtype, start, end in self._ranges],
        )

    def _view(self, memory: Tensor, like: Tensor) -> Tensor:
        at = self._offsets[id(like)]
        # With the strides of ``like``, in which autograd lays out a gradient: norms depend on them.
        strides = torch.empty_like(like, device="meta").stride()
        return memory[at : at + like.nbytes].view(like.dtype).as_strided(like.shape, strides)
