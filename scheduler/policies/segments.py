"""Segment lengths: how many epochs one task carries.

A segment costs a fixed overhead ``o`` (dispatch, claim, report, accept). With ``n`` epochs of ``e``
seconds its share is ``o / (n e)``. The smallest ``n`` that keeps it within ``SHARE`` is ``ceil(o /
(SHARE e))``. A segment is limited in seconds as well, so that a study stays responsive even where a
cut cannot reach it. It never passes the trial's target.
"""

from __future__ import annotations

from math import ceil

#: The share of device time that the overhead of segments may take.
SHARE = 0.01
#: The longest planned segment of more than one epoch (seconds).
LONGEST = 2.0


def segment_length(
    epoch_seconds: float | None, overhead: float, remaining: int, longest: int
) -> int:
    """Epochs of the next segment: 1 to ``min(remaining, longest)``; 1 if nothing was measured."""
    if epoch_seconds is None:
        return 1
    if epoch_seconds <= 0.0:
        return max(1, min(remaining, longest))
    needed = ceil(overhead / (SHARE * epoch_seconds))
    bounded = min(needed, int(LONGEST / epoch_seconds), remaining, longest)
    return max(1, bounded)
