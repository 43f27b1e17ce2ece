"""Trains what a tuner asks for on simulated workers, with the time of its decisions.

Theory of operation. A heap has what will happen, by simulated seconds: a worker that is free, and
an epoch that ends. Each decision of the tuner is really made, and timed with ``perf_counter``; that
time is added where it would be spent:

- A tuner that ``shares`` one process with all its workers decides one thing after another: who asks
  while it thinks waits. Of another each worker decides for itself, at the same time as others.
- Where training ``waits``, the next epoch of a trial begins when it is decided that it goes on;
  else at once, and what is decided against it ends it later, in the middle of that epoch.

What an epoch takes and gives comes from a table; reading it costs nothing.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Protocol

#: The values after each epoch of a configuration, and the seconds of one.
Curve = tuple[list[float], float]


@dataclass(frozen=True)
class Job:
    """Epochs that a tuner asks for: a trial from its epoch ``first`` on."""

    trial: Any
    params: Mapping[str, Any]
    first: int = 1


class Tuner(Protocol):
    """A tuner as the loop asks it."""

    #: True where one process decides for all workers, one thing after another.
    shares: bool
    #: True where a trial's next epoch begins only when it is decided that it goes on.
    waits: bool

    def suggest(self) -> Job | None:
        """Return what a free worker trains; None: nothing before another report."""

    def report(self, trial: Any, epoch: int, value: float) -> bool:
        """Take the value of an epoch; whether its trial goes on at once."""


@dataclass
class Played:
    """(seconds, value) of each epoch in order, and the seconds of all decisions."""

    steps: list[tuple[float, float]] = field(default_factory=list)
    decided: float = 0.0


def play(tuner: Tuner, workers: int, budget: float, curve: Callable[[Any], Curve]) -> Played:
    """Let ``tuner`` tune for ``budget`` simulated seconds on ``workers`` workers."""
    played, ties = Played(), count()
    heap: list[tuple[float, int, tuple[Job, int] | None]] = []
    desk = 0.0  # when the shared process is free
    parked = 0

    def decide(at: float, act: Callable[[], Any]) -> tuple[float, float, Any]:
        """Return when a decision that is asked for at ``at`` begins and ends, and the decision."""
        nonlocal desk
        begin = max(at, desk) if tuner.shares else at
        started = time.perf_counter()
        found = act()
        took = time.perf_counter() - started
        played.decided += took
        if tuner.shares:
            desk = begin + took
        return begin, begin + took, found

    def push(at: float, what: tuple[Job, int] | None) -> None:
        heapq.heappush(heap, (at, next(ties), what))

    for _ in range(workers):
        push(0.0, None)
    while heap and heap[0][0] <= budget:
        at, _, what = heapq.heappop(heap)
        if what is None:
            _, end, job = decide(at, tuner.suggest)
            if job is None:
                parked += 1
            else:
                push(end + curve(job.params)[1], (job, job.first))
            continue
        job, epoch = what
        values, seconds = curve(job.params)
        value = values[epoch - 1]
        begin, end, goes_on = decide(at, lambda: tuner.report(job.trial, epoch, value))  # noqa: B023 - called at once
        played.steps.append((begin, value))
        if goes_on:
            push((end if tuner.waits else at) + seconds, (job, epoch + 1))
        for _ in range(parked + (not goes_on)):
            push(end, None)
        parked = 0
    return played
