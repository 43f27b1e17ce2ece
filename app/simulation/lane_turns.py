"""Residents of simulated lanes: they share a lane's time by the weights of their turns.

Theory of operation. Turns are short beside epochs, so a resident of weight w is taken to run at the
rate w / (sum of weights): generalised processor sharing, which deficit round robin comes within a
turn of (Shreedhar and Varghese, SIGCOMM 1995). One of weight 0 stands still, unless all have that.
Rates change when a resident comes or goes. What is still to come of a resident is then rescheduled.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

#: A report to come: simulated time, tie-breaking counter, fence, and the report itself.
Entry = tuple[float, int, int, dict[str, Any]]


@dataclass
class _Resident:
    lane: tuple[str, int]
    trial: str
    #: Time in turn until ``counted_at`` (seconds), and at its last report.
    in_turn: float
    counted_at: float
    reported: float = 0.0
    weight: float = 1.0
    rate: float = 1.0
    #: Reports to come while it stands still, with the time in turn until each of them.
    parked: list[Entry] = field(default_factory=list)

    def count(self, now: float) -> None:
        self.in_turn += self.rate * (now - self.counted_at)
        self.counted_at = now


@dataclass
class LaneTurns:
    """Who is in which lane, and at what rate it runs."""

    _residents: dict[int, _Resident] = field(default_factory=dict)

    def __contains__(self, fence: int) -> bool:
        return fence in self._residents

    def lanes_at_work(self, device: str) -> set[int]:
        """The lanes of ``device`` that have residents."""
        return {each.lane[1] for each in self._residents.values() if each.lane[0] == device}

    def enter(self, fence: int, trial: str, lane: tuple[str, int], begins: float) -> None:
        """A segment takes a seat; its first step begins at ``begins`` if it is alone there."""
        self._residents[fence] = _Resident(lane, trial, 0.0, begins)

    def weigh(
        self, heap: list[Entry], now: float, fence: int, weights: Mapping[str, float]
    ) -> None:
        """These weights, by trial, hold in the lane of the segment from now on.

        ``heap`` has what is to come of its residents.
        """
        lane = self._residents[fence].lane
        for each in self._residents.values():
            if each.lane == lane:
                each.weight = weights.get(each.trial, each.weight)
        self._reschedule(heap, now, lane)

    def device(self, fence: int) -> str:
        """The device that a resident is on."""
        return self._residents[fence].lane[0]

    def leave(self, heap: list[Entry], now: float, fence: int) -> None:
        """A segment is over."""
        lane = self._residents.pop(fence).lane
        self._reschedule(heap, now, lane)

    def seconds(self, fence: int, now: float) -> float:
        """The time in turn since the last report of a segment, which reports now."""
        resident = self._residents[fence]
        resident.count(now)
        since, resident.reported = resident.in_turn - resident.reported, resident.in_turn
        return since

    def parked(self, fence: int) -> list[Entry]:
        """What is to come of a segment that stands still."""
        return self._residents[fence].parked if fence in self._residents else []

    def slow_down(self, device: str, factor: float) -> set[int]:
        """Steps on ``device`` take ``factor`` times as long from now on.

        What stands still is rescheduled; it returns the fences of all residents there.
        """
        there = {fence for fence, each in self._residents.items() if each.lane[0] == device}
        for fence in there:
            parked = self._residents[fence].parked
            self._residents[fence].parked = [
                (left * factor, number, of, body) for left, number, of, body in parked
            ]
        return there

    def _reschedule(self, heap: list[Entry], now: float, lane: tuple[str, int]) -> None:
        there = {fence: each for fence, each in self._residents.items() if each.lane == lane}
        total = sum(each.weight for each in there.values())
        others = list[Entry]()
        for at, number, fence, body in heap:
            if fence in there:
                left = (at - now) * there[fence].rate
                there[fence].parked.append((left, number, fence, body))
            else:
                others.append((at, number, fence, body))
        for each in there.values():
            each.count(now)
            each.rate = each.weight / total if total else 1.0 / len(there)
            if each.rate:
                others += [
                    (now + left / each.rate, number, fence, body)
                    for left, number, fence, body in each.parked
                ]
                each.parked = []
        heap[:] = others
        heapq.heapify(heap)
