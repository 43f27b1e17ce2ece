"""Windows of an epoch: which steps run under which system configuration, and how fast they are.

Theory of operation. An epoch in which exact configurations are probed is cut into windows. They
alternate between the trial's own configuration and a candidate; the candidates take turns. All
steps are the epoch's own, so nothing is lost but the time that a slow candidate costs.

The seconds a step of a window are the median over pairs of its steps, without the first steps, in
which workers start and buffers fill. Pairs, because the examples of two loader workers come in
pairs: a long wait, then none. A candidate's seconds are compared with the mean of the
windows before and after it. The same holds for its joules a step, which are the mean over the
same steps, where the window is long enough to measure them.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from ...profiling.counters.energy import Mark
from ...profiling.knobs.knobs import SystemConfig
from ..process.energy import MIN_METERED, Metering
from ..process.pipe import Window
from .system import System

#: The first steps of a window, which are not counted, and the fewest that must be counted.
WARM_UP, MIN_STEPS = 2, 4
#: The most windows of one epoch that run a candidate.
MAX_WINDOWS = 12


@dataclass(slots=True)
class StepWindow:
    """The steps ``first`` to ``stop`` - 1 (0-based) of an epoch, and the system they run under."""

    #: The configuration in force.
    system: System
    first: int
    stop: int
    #: The candidate that is probed; None: the trial's own configuration.
    config: SystemConfig | None = None
    _times: list[float] = field(default_factory=list)
    _begin: Mark | None = None
    _joules: float | None = None

    def tick(self, metering: Metering) -> None:
        """Called when a step begins, and after the last one."""
        self._times.append(time.perf_counter())
        if len(self._times) == WARM_UP + 1:
            self._begin = metering.now()
        elif len(self._times) == self.stop - self.first + 1:
            self._joules = metering.since(self._begin)

    @property
    def step_joules(self) -> float | None:
        """Mean joules of the counted steps. None where not measured or the steps are too short."""
        times = self._times[WARM_UP:]
        if self._joules is None or times[-1] - times[0] < MIN_METERED:
            return None
        return self._joules / (len(times) - 1)

    @property
    def step_seconds(self) -> float:
        """The median over pairs of steps of the time of one step, warm-up excluded."""
        pairs = itertools.pairwise(self._times[WARM_UP::2])
        return median((after - before) / 2 for before, after in pairs)

    @property
    def seconds(self) -> float:
        return self._times[-1] - self._times[0]


def interleave(own: SystemConfig, tried: Sequence[SystemConfig], steps: int) -> list[StepWindow]:
    """Cut an epoch of ``steps`` steps to probe ``tried``; empty where it is too short."""
    probes = min(MAX_WINDOWS, (steps // (WARM_UP + MIN_STEPS) - 1) // 2)
    if probes < 1 or not tried:
        return []
    count = 2 * probes + 1
    cuts = [steps * i // count for i in range(count + 1)]
    found = []
    for i, (first, stop) in enumerate(itertools.pairwise(cuts)):
        config = tried[i // 2 % len(tried)] if i % 2 else None
        system = System(own) if config is None else System({**dict(own), **dict(config)}.items())
        found.append(StepWindow(system, first, stop, config))
    return found


def results(done: Sequence[StepWindow]) -> list[Window]:
    """The result of each window that ran a candidate, once the epoch is over."""
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
    """A window's joules relative to the mean of the two beside it. None if any is unknown or 0."""
    if not tried or not before or not after:
        return None
    return tried / ((before + after) / 2)
