"""Segment lengths: how many epochs one task carries.

A segment costs a fixed overhead ``o`` (dispatch, claim, report, accept). With ``n`` epochs of ``e``
seconds its share is ``o / (n e)``. The smallest ``n`` that keeps it within ``MAX_OVERHEAD`` is
``ceil(o / (MAX_OVERHEAD e))``. A segment is limited in seconds as well, so that a study stays
responsive even where a cut cannot reach it. It never passes the trial's target.
"""

from __future__ import annotations

from math import ceil

#: The share of device time that the overhead of segments may take.
MAX_OVERHEAD = 0.01
#: The longest planned segment of more than one epoch (seconds).
MAX_SEGMENT_SECONDS = 2.0


def segment_length(
    epoch_seconds: float | None, overhead: float, remaining: int, max_epochs: int
) -> int:
    """Epochs of the next segment: 1 to ``min(remaining, longest)``; 1 if nothing was measured."""
    if epoch_seconds is None:
        return 1
    if epoch_seconds <= 0.0:
        return max(1, min(remaining, max_epochs))
    needed = ceil(overhead / (MAX_OVERHEAD * epoch_seconds))
    bounded = min(needed, int(MAX_SEGMENT_SECONDS / epoch_seconds), remaining, max_epochs)
    return max(1, bounded)
