"""The host memory of a trial's process, from the bytes of its tensors.

Theory of operation. On a CPU a trial makes its process grow by more than its tensors: by code that
is loaded for its kernels, by what these reorder, and by what the C library keeps of freed blocks
for the next step. The first is much the same for all trials. The others grow with the tensors, for
trials of one family in the same way. So a process has ``base + LOADED + slope x peak`` bytes, where
``base`` is what it had before the trial. The slope is what earlier trials grew by, all together,
over the sum of their peaks: of small ones it says little.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

#: Bytes that the first trial of a process makes it grow by, whatever its size (docs/memory.md).
LOADED = 42 << 20
#: Bytes for each byte of the peak, before any trial was seen.
SLOPE = 1.9
#: The most trials that are looked at: the newest.
MOST = 50


@dataclass(frozen=True, slots=True)
class Grown:
    """An earlier trial: the peak of its tensors, and its process before it and at its peak."""

    peak: int
    base: int
    process: int


def slope(seen: Sequence[Grown]) -> float:
    """Return the bytes that a process grows by for each byte of the peak; at least 1.

    ``seen`` are earlier trials of the family, oldest first.
    """
    measured = [each for each in seen if each.peak > 0][-MOST:]
    grown = sum(each.process - each.base - LOADED for each in measured)
    return max(1.0, grown / sum(each.peak for each in measured)) if measured else SLOPE


def resident_bytes(base: int, peak: float, slope: float) -> int:
    """Return the bytes of a process that had ``base``, in a trial with ``peak`` of tensors."""
    return round(base + LOADED + slope * peak)
