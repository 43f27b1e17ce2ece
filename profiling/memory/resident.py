"""What a trial's process takes of the host's memory, from the bytes of its tensors.

Theory of operation. On a CPU a process has more than its tensors: what it does not share with the
trainers beside it, scratch of kernels, and what the C library keeps of freed blocks. The first is
much the same for all trials, the others grow with the tensors. So the resident bytes are
``BASE + slope x peak``. The slope is the median over earlier trials, as long as their peaks are
alike; once they differ it is Theil and Sen's: the median over all pairs, and the base with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from statistics import median

#: Bytes of a trainer that has imported torch, without those that it shares (docs/memory.md).
BASE = 60 << 20
#: Resident bytes for each byte of the peak, before any trial was seen.
SLOPE = 1.3
#: The peaks of a pair differ by at least this factor.
APART = 1.5
#: The most trials that are looked at: the newest.
MOST = 50


def resident_bytes(peak: int, seen: Sequence[tuple[int, int]]) -> int:
    """The bytes of the process of a trial whose tensors have ``peak`` bytes at one time.

    ``seen`` are (peak, bytes of the process) of earlier trials of its family, oldest first.
    """
    seen = [each for each in seen if each[0] > 0][-MOST:]
    slopes = [
        (high[1] - low[1]) / (high[0] - low[0])
        for low, high in (sorted(pair) for pair in combinations(seen, 2))
        if high[0] >= APART * low[0]
    ]
    if slopes:
        slope = max(0.0, median(slopes))
        base = median(found - slope * tensors for tensors, found in seen)
    else:
        base = BASE
        slope = max(1.0, median((f - BASE) / p for p, f in seen)) if seen else SLOPE
    return round(base + slope * peak)
