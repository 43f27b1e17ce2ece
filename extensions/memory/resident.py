"""The host memory of a trial's process, from the bytes of its tensors.

Theory of operation. On a CPU a trial makes its process grow by more than its tensors: by code that
is loaded for its kernels, by reordered copies that kernels make, and by freed blocks that the C
library keeps for the next step. The code is about the same for all trials. The rest grows with the
tensors, in the same way for trials of one family. So a process has ``base + LOADED + slope x peak``
bytes, where ``base`` is its size before the trial. The slope is the total growth of earlier trials
beyond ``LOADED``, divided by the sum of their peaks, so that small trials have little weight.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

#: Bytes by which a process's first trial makes it grow, whatever the size (docs/memory.md).
LOADED = 42 << 20
#: The growth in bytes for each byte of the peak, before any trial was measured.
SLOPE = 1.9
#: The number of newest trials that count.
MOST = 50


@dataclass(frozen=True, slots=True)
class Grown:
    """Bytes of an earlier trial: its tensors' peak, and its process before it and at its peak."""

    peak: int
    base: int
    process: int


def slope(seen: Sequence[Grown]) -> float:
    """Return the growth of a process in bytes for each byte of the peak; at least 1.

    ``seen`` are earlier trials of the family, oldest first.
    """
    measured = [each for each in seen if each.peak > 0][-MOST:]
    grown = sum(each.process - each.base - LOADED for each in measured)
    return max(1.0, grown / sum(each.peak for each in measured)) if measured else SLOPE


def resident_bytes(base: int, peak: float, slope: float) -> int:
    """Return the bytes of a process, which had ``base`` before a trial with ``peak`` of tensors."""
    return round(base + LOADED + slope * peak)
