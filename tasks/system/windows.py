"""Stretches of an epoch: which steps run under which system configuration, and how fast they were.

Theory of operation. An epoch in which exact configurations are tried is cut into stretches,
alternately under the trial's own configuration and under one that is tried; what is tried takes
turns. Its steps are the epoch's own, so no work is thrown away but what a slow configuration costs.
A stretch's seconds a step are the median over pairs of its steps, the first ones left out (workers
start, buffers fill): examples of two loader workers come in pairs, a long wait and none. Those of a
stretch that is tried are compared with the mean of its two neighbours. So are its joules a step,
the mean over the same steps, where the stretch is long enough for them.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from ...profiling.counters.energy import Mark
from ...profiling.knobs.knobs import SystemConfig
from ..process.energy import SHORTEST, Metering
from ..process.pipe import Window
from .system import System

#: Steps of a stretch that are not counted, and the fewest that are.
WARM_UP, FEWEST = 2, 4
#: Stretches that try something in one epoch at most.
MOST = 12


@dataclass(slots=True)
class Stretch:
    """Steps ``first`` to ``stop`` - 1 of an epoch (0-based) under ``system``.

    ``config`` is what is tried there, None where nothing is.
    """

    system: System
    first: int
    stop: int
    config: SystemConfig | None = None
    _times: list[float] = field(default_factory=list)
    _begin: Mark | None = None
    _joules: float | None = None

    def tick(self, metering: Metering) -> None:
        """A step begins, or the last one has ended."""
        self._times.append(time.perf_counter())
        if len(self._times) == WARM_UP + 1:
            self._begin = metering.now()
        elif len(self._times) == self.stop - self.first + 1:
            self._joules = metering.since(self._begin)

    @property
    def step_joules(self) -> float | None:
        """The mean of the same steps' joules; None where they are not measured, or too short."""
        times = self._times[WARM_UP:]
        if self._joules is None or times[-1] - times[0] < SHORTEST:
            return None
        return self._joules / (len(times) - 1)

    @property
    def step_seconds(self) -> float:
        """The median of what its pairs of steps took a step, warm-up left out."""
        pairs = itertools.pairwise(self._times[WARM_UP::2])
        return median((after - before) / 2 for before, after in pairs)

    @property
    def seconds(self) -> float:
        return self._times[-1] - self._times[0]


def stretches(own: SystemConfig, tried: Sequence[SystemConfig], steps: int) -> list[Stretch]:
    """An epoch of ``steps`` steps cut to try configurations; none where it is too short for one."""
    turns = min(MOST, (steps // (WARM_UP + FEWEST) - 1) // 2)
    if turns < 1 or not tried:
        return []
    count = 2 * turns + 1
    cuts = [steps * i // count for i in range(count + 1)]
    found = []
    for i, (first, stop) in enumerate(itertools.pairwise(cuts)):
        config = tried[i // 2 % len(tried)] if i % 2 else None
        system = System(own) if config is None else System({**dict(own), **dict(config)}.items())
        found.append(Stretch(system, first, stop, config))
    return found


def windows(done: Sequence[Stretch]) -> list[Window]:
    """One for each stretch that tried a configuration, its epoch over."""
    found = []
    for before, tried, after in zip(done[::2], done[1::2], done[2::2], strict=False):
        assert tried.config is not None
        usual = (before.step_seconds + after.step_seconds) / 2
        ratio = tried.step_seconds / usual
        wasted = max(0.0, tried.seconds * (1 - 1 / ratio))
        joules = relative(tried.step_joules, before.step_joules, after.step_joules)
        found.append((tried.config, ratio, wasted, joules))
    return found


def relative(tried: float | None, before: float | None, after: float | None) -> float | None:
    """A window's joules over the mean of its neighbours'; None where any is not known, or 0."""
    if not tried or not before or not after:
        return None
    return tried / ((before + after) / 2)
