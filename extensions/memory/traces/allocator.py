"""The bytes that PyTorch's caching allocator reserves on a GPU for a sequence of allocations.

Theory of operation. The allocator takes segments from the device and cuts blocks out of them. Sizes
are rounded up to multiples of 512 bytes. Blocks of up to 1 MiB are cut from segments of 2 MiB, and
blocks of up to 10 MiB from segments of 20 MiB. A larger block gets a segment of its own, rounded up
to a multiple of 2 MiB. An allocation takes the smallest free block of its pool that fits. The rest
of the block returns to the pool if it is large enough: at least 512 bytes in the small pool, more
than 1 MiB in the large one. A freed block joins its free neighbours. Segments are never given back,
so the reserved memory only grows.

Not modelled: a refused segment (the allocator then empties its cache), several streams, expandable
segments, workspaces of cuBLAS and cuDNN.

The constants come from c10/cuda/CUDACachingAllocator.cpp of PyTorch 2.13; PyTorch's own tests state
the same.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable
from dataclasses import dataclass

MIB = 1 << 20
#: Sizes are multiples of this (bytes).
ROUND = 512
#: The largest block of the small pool, and the size of the pool's segments (bytes).
SMALL, SMALL_SEGMENT = MIB, 2 * MIB
#: The block size (bytes) below which the large pool takes segments of a fixed size, and that size.
LARGE, LARGE_SEGMENT = 10 * MIB, 20 * MIB
#: Larger segments are multiples of this (bytes).
SEGMENT_ROUND = 2 * MIB

#: One step of the replay: a block's name and its bytes, which are negative if it is freed.
Change = tuple[int, int]


@dataclass(eq=False, slots=True)
class _Block:
    size: int
    segment: int
    small: bool
    offset: int
    free: bool = False
    before: _Block | None = None
    after: _Block | None = None

    def rank(self) -> tuple[int, int, int]:
        """Return the block's sort key among free blocks: size, then address."""
        return self.size, self.segment, self.offset


def reserved_bytes(changes: Iterable[Change]) -> int:
    """Return the bytes that the allocator has taken from the device after ``changes``."""
    replay = _Replay()
    for name, size in changes:
        if size > 0:
            replay.take(name, size)
        else:
            replay.give(name)
    return replay.reserved


def peak_bytes(changes: Iterable[Change]) -> int:
    """Return the most bytes that are allocated at any one time, without rounding."""
    live = most = 0
    for _, size in changes:
        live += size
        most = max(most, live)
    return most


class _Replay:
    """The allocator's pools, and the blocks that are in use."""

    def __init__(self) -> None:
        self.reserved = 0
        self._segments = 0
        self._free: dict[bool, list[_Block]] = {True: [], False: []}
        self._used: dict[int, _Block] = {}

    def take(self, name: int, size: int) -> None:
        size = -(-size // ROUND) * ROUND
        small = size <= SMALL
        block = self._fitting(size, small=small) or self._segment(size, small=small)
        self._cut(block, size)
        block.free = False
        self._used[name] = block

    def give(self, name: int) -> None:
        block = self._used.pop(name, None)
        if block is None:
            return
        for other in (block.before, block.after):
            if other is not None and other.free:
                self._free[block.small].remove(other)
                self._join(block, other)
        block.free = True
        insort(self._free[block.small], block, key=_Block.rank)

    def _fitting(self, size: int, *, small: bool) -> _Block | None:
        pool = self._free[small]
        for i, block in enumerate(pool):
            if block.size >= size:
                return pool.pop(i)
        return None

    def _segment(self, size: int, *, small: bool) -> _Block:
        if small:
            segment_size = SMALL_SEGMENT
        elif size < LARGE:
            segment_size = LARGE_SEGMENT
        else:
            segment_size = -(-size // SEGMENT_ROUND) * SEGMENT_ROUND
        self.reserved += segment_size
        self._segments += 1
        return _Block(segment_size, self._segments, small, 0)

    def _cut(self, block: _Block, size: int) -> None:
        rest = block.size - size
        if rest < ROUND if block.small else rest <= SMALL:
            return
        remainder = _Block(
            rest, block.segment, block.small, block.offset + size, True, block, block.after
        )
        if block.after is not None:
            block.after.before = remainder
        block.after, block.size = remainder, size
        insort(self._free[block.small], remainder, key=_Block.rank)

    def _join(self, block: _Block, other: _Block) -> None:
        """Merge the free neighbour ``other`` into ``block``."""
        block.size += other.size
        block.offset = min(block.offset, other.offset)
        if other is block.before:
            block.before = other.before
            if block.before is not None:
                block.before.after = block
        else:
            block.after = other.after
            if block.after is not None:
                block.after.before = block
