"""Lays out when the epochs of trials that share a lane had their turns, as far as that is known.

Theory of operation. Of such an epoch it is known when it ended, and how long its turns were in all,
but not when they were. The turns of a lane do not overlap. So they are laid out: shorter epochs
first, each over the latest time before its end that no other has. There always is such a time (it
is the greedy algorithm for jobs with deadlines on one machine), and the lane is never taken to work
for more than all of the time. An epoch in whose middle another one ran is seen in two spans.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ...app.show.views.delays import Span

if TYPE_CHECKING:
    from ...app.show.views.delays import Epoch

#: Seconds: turns that are shorter than this are taken to be none. It is more than the distance
#: between two times of today (2.4e-7 s), which are floats.
_NONE = 1e-6


def shared_spans(rows: Sequence[Epoch], seats: Mapping[str, int]) -> dict[int, list[Span]]:
    """Return the spans of those of ``rows`` that shared a lane, by index.

    ``seats`` is how many seats each lane of a device has, by the device's name.
    """
    spans_by_row = dict[int, list[Span]]()
    lanes: dict[tuple[str, int], list[int]] = {}
    for index, row in enumerate(rows):
        if row.began is not None:
            lane = row.device, row.slot // seats.get(row.device, 1)
            lanes.setdefault(lane, []).append(index)
    for indices in lanes.values():
        busy: list[Span] = []
        for index in sorted(indices, key=lambda each: rows[each].seconds):
            spans_by_row[index] = _take_latest(busy, rows[index].at, rows[index].seconds)
    return spans_by_row


def _take_latest(busy: list[Span], end: float, seconds: float) -> list[Span]:
    """Take ``seconds`` of the latest time before ``end`` that is not in ``busy``.

    ``busy`` has disjoint spans in order. The time between two of them that becomes taken joins
    them.
    """
    last = first = bisect_left(busy, (end,))
    top = max(end, busy[last - 1][1]) if last else end
    pieces: list[Span] = []
    while True:
        if first and busy[first - 1][1] >= end:
            first -= 1
            end = min(end, busy[first][0])
        elif seconds <= _NONE:
            break
        else:
            begin = max(end - seconds, busy[first - 1][1]) if first else end - seconds
            pieces.append((begin, end))
            seconds -= end - begin
            end = begin
    busy[first:last] = [(end, top)]
    return pieces[::-1]
