"""Estimates the times at which epochs of trials that share a lane had their turns.

Theory of operation. For such an epoch the ledger has its end and the total length of its turns, but
not the time of each turn. The turns of a lane do not overlap. So times are assigned to epochs, the
shorter epochs first: each gets the latest time before its end that no other epoch has. Such a time
always exists (this is the greedy algorithm for jobs with deadlines on one machine), and the lane is
never shown as more than fully used. If another epoch ran in the middle of an epoch, that epoch gets
two spans.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ...app.show.views.delays import Span

if TYPE_CHECKING:
    from ...app.show.views.delays import Epoch

#: Seconds below which turns are ignored. It is larger than the distance between two adjacent floats
#: near the present time (2.4e-7 s).
_NONE = 1e-6


def shared_spans(rows: Sequence[Epoch], seats: Mapping[str, int]) -> dict[int, list[Span]]:
    """Return the spans of the ``rows`` that shared a lane, by index in ``rows``.

    ``seats`` has the number of seats per lane by the device's name.
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
    """Take the latest ``seconds`` before ``end`` that are not in ``busy``; return them as spans.

    ``busy`` has disjoint spans in order. The spans taken are added to it, and spans that then touch
    are joined.
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
