"""Simulated lanes: trials in one process that share its time by the weights of their turns.

Theory of operation. A trial in a lane is a *resident*. Turns are short compared with epochs, so a
resident of weight w is assumed to run at the rate w / (sum of weights). This is generalised
processor sharing; deficit round robin differs from it by at most a turn (Shreedhar and Varghese,
SIGCOMM 1995). A resident of weight 0 stands still, unless all residents have that weight. Rates
change when a resident enters or leaves the lane; the reports of the lane's residents are then
rescheduled.

Residents of one study may be a fused group (trials trained together in one pass). Then each of them
needs only a part of the time that it would need alone, and the part depends on their number. Real
residents are fused at the start of an epoch, simulated residents at once.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ....profiling.costs.group_slowdown import COPIES

#: A future report: its simulated time, a number that breaks ties, the fence of the segment, and the
#: report itself.
Entry = tuple[float, int, int, dict[str, Any]]


@dataclass
class _Resident:
    lane: tuple[str, int]
    study: str
    trial: str
    #: Seconds of the resident's turns until ``counted_at``, and until its last report.
    in_turn: float
    counted_at: float
    reported: float = 0.0
    weight: float = 1.0
    #: The fraction of the lane's time that the resident gets, and the size of its fused group.
    part: float = 1.0
    group_size: int = 1
    #: The speed of the resident's epoch, divided by the speed that it would have alone in the lane.
    rate: float = 1.0
    #: Future reports of a resident that stands still. In place of its time, each has the seconds of
    #: work that are left until the report.
    parked: list[Entry] = field(default_factory=list)

    def count(self, now: float) -> None:
        self.in_turn += self.part * (now - self.counted_at)
        self.counted_at = now


@dataclass
class LaneTurns:
    """The residents of all simulated lanes, and the rates at which they run."""

    #: Returns the slowdown of a fused group from a study's id and the number of trials in the
    #: group.
    group_slowdown: Callable[[str, int], float]
    _residents: dict[int, _Resident] = field(default_factory=dict)

    def __contains__(self, fence: int) -> bool:
        return fence in self._residents

    def lanes_at_work(self, device: str) -> set[int]:
        """Return the indices of the lanes of ``device`` that have residents."""
        return {each.lane[1] for each in self._residents.values() if each.lane[0] == device}

    def enter(
        self, fence: int, trial: str, study: str, lane: tuple[str, int], begins: float
    ) -> None:
        """Give a segment a seat in a lane.

        ``fence`` is the fence of the segment. The segment's first step starts at ``begins``
        (simulated seconds) if the lane is empty.
        """
        self._residents[fence] = _Resident(lane, study, trial, 0.0, begins)

    def weigh(
        self, heap: list[Entry], now: float, fence: int, weights: Mapping[str, float]
    ) -> None:
        """Set weights, by trial, for the residents of the lane of the segment with this fence.

        The weights hold from ``now`` on. ``heap`` has the future reports of the residents, which
        are rescheduled in place.
        """
        lane = self._residents[fence].lane
        for each in self._residents.values():
            if each.lane == lane:
                each.weight = weights.get(each.trial, each.weight)
        self._reschedule(heap, now, lane)

    def device(self, fence: int) -> str:
        """Return the device of the resident with this fence."""
        return self._residents[fence].lane[0]

    def leave(self, heap: list[Entry], now: float, fence: int) -> None:
        """Remove the segment with this fence from its lane.

        The reports of the other residents are rescheduled in ``heap``.
        """
        lane = self._residents.pop(fence).lane
        self._reschedule(heap, now, lane)

    def seconds(self, fence: int, now: float) -> float:
        """Return the seconds of a segment's turns since its last report.

        Call this once for each report of the segment, with the time ``now`` of the report.
        """
        resident = self._residents[fence]
        resident.count(now)
        since, resident.reported = resident.in_turn - resident.reported, resident.in_turn
        return max(0.0, since)  # below it if the first step began later than it took

    def group_size(self, fence: int) -> int:
        """Return the size of the fused group in which a segment's epoch runs.

        The result is 1 if the segment's trial is not fused with others.
        """
        resident = self._residents[fence]
        n = resident.group_size
        return n if self.group_slowdown(resident.study, n) < 1.0 else 1

    def expected(self, fence: int) -> list[tuple[int, float]]:
        """Return the gains that a real trainer would measure with fused copies of a trial.

        The trial is that of the segment with this fence. The result has pairs: a number of copies,
        and their time per trial divided by the time of one copy alone. Only pairs with a ratio
        below 1 are returned.
        """
        study = self._residents[fence].study
        slowdowns = [(n, self.group_slowdown(study, n)) for n in COPIES]
        return [each for each in slowdowns if each[1] < 1.0]

    def parked(self, fence: int) -> list[Entry]:
        """Return the future reports of a segment that stands still, or an empty list."""
        return self._residents[fence].parked if fence in self._residents else []

    def slow_down(self, device: str, factor: float) -> set[int]:
        """Let steps on ``device`` take ``factor`` times as long from now on.

        Reports of residents that stand still are rescheduled. Return the fences of all residents of
        the device, so that the caller can reschedule the reports of the other residents.
        """
        fences = {fence for fence, each in self._residents.items() if each.lane[0] == device}
        for fence in fences:
            parked = self._residents[fence].parked
            self._residents[fence].parked = [
                (remaining * factor, number, of, body) for remaining, number, of, body in parked
            ]
        return fences

    def _reschedule(self, heap: list[Entry], now: float, lane: tuple[str, int]) -> None:
        residents = {fence: each for fence, each in self._residents.items() if each.lane == lane}
        total = sum(each.weight for each in residents.values())
        entries = list[Entry]()
        for at, number, fence, body in heap:
            if fence in residents:
                remaining = (at - now) * residents[fence].rate
                residents[fence].parked.append((remaining, number, fence, body))
            else:
                entries.append((at, number, fence, body))
        for each in residents.values():
            each.count(now)
            each.part = each.weight / total if total else 1.0 / len(residents)
        at_work = Counter(each.study for each in residents.values() if each.part)
        for each in residents.values():
            each.group_size = max(1, at_work[each.study])
            each.rate = each.part / self.group_slowdown(each.study, each.group_size)
            if each.rate:
                entries += [
                    (now + remaining / each.rate, number, fence, body)
                    for remaining, number, fence, body in each.parked
                ]
                each.parked = []
        heap[:] = entries
        heapq.heapify(heap)
