"""Ideal schedules of jobs on one device: no overhead, known times, preemption at any instant.

It is an event simulation of its own, which shares nothing with the engine: between two events
exactly one job runs, an event is an arrival or an end. It says what a scheduler that knows all
times and switches for free would reach.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence

#: (seconds left, seconds in all, time of arrival, number): what a rule may order by.
Waiting = tuple[float, float, float, int]

#: The rules: who runs next, and whether a newcomer may interrupt who runs.
RULES: dict[str, tuple[Callable[[Waiting], float], bool]] = {
    "fifo": (lambda job: job[2], False),
    "sjf": (lambda job: job[1], False),
    "srtf": (lambda job: job[0], True),
}


def ideal_ends(jobs: Sequence[tuple[float, float]], rule: str) -> list[float]:
    """When each of ``jobs`` (arrival, seconds) ends on one device under a rule of ``RULES``.

    >>> ideal_ends([(0.0, 10.0), (1.0, 2.0), (1.0, 1.0)], "srtf")
    [13.0, 4.0, 2.0]
    """
    key, preemptive = RULES[rule]
    ends = [0.0] * len(jobs)
    order = sorted(range(len(jobs)), key=lambda number: (jobs[number][0], number))
    queue: list[tuple[float, float, int, float]] = []  # (key, arrival, number, seconds left)
    now, next_arrival = 0.0, 0
    while next_arrival < len(order) or queue:
        if not queue:
            now = max(now, jobs[order[next_arrival]][0])
        while next_arrival < len(order) and jobs[order[next_arrival]][0] <= now:
            number = order[next_arrival]
            arrival, seconds = jobs[number]
            heapq.heappush(
                queue, (key((seconds, seconds, arrival, number)), arrival, number, seconds)
            )
            next_arrival += 1
        _, arrival, number, left = heapq.heappop(queue)
        upcoming = jobs[order[next_arrival]][0] if next_arrival < len(order) else math.inf
        if preemptive and now + left > upcoming:
            left -= upcoming - now
            now = upcoming
            rank = key((left, jobs[number][1], arrival, number))
            heapq.heappush(queue, (rank, arrival, number, left))
            continue
        now += left
        ends[number] = now
    return ends


def mean_completion(jobs: Sequence[tuple[float, float]], rule: str) -> float:
    """The mean time from a job's arrival to its end (seconds)."""
    ends = ideal_ends(jobs, rule)
    return math.fsum(end - job[0] for end, job in zip(ends, jobs, strict=True)) / len(jobs)
