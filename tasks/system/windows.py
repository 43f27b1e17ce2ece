"""Windows of an epoch: steps that run under a system configuration, and their speed.

The seconds per step of a window are the median over pairs of its steps. The first steps are left
out, because the data loader's workers start and buffers fill during them. Pairs are used because
the batches of two loader workers come in pairs: the first after a long wait, the second at once.
The joules per step are the mean over the same steps, if the window is long enough to measure them.
"""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass, field
from statistics import median

from ...profiling.counters.energy import Mark
from ...profiling.knobs.knobs import SystemConfig
from ..process.energy import MIN_METERED, Metering
from .system import System

#: Number of first steps of a window that do not count, and least number of steps that must count.
WARM_UP, MIN_STEPS = 2, 4


@dataclass(slots=True)
class StepWindow:
    """The steps ``first`` to ``stop`` - 1 (0-based) of an epoch, and the system they run under."""

    #: The system configuration in force.
    system: System
    first: int
    stop: int
    #: The candidate that is probed; None for the trial's own configuration.
    config: SystemConfig | None = None
    _times: list[float] = field(default_factory=list)
    _begin: Mark | None = None
    _joules: float | None = None

    def tick(self, metering: Metering) -> None:
        """Record the time. Called when a step begins, and after the last one."""
        self._times.append(time.perf_counter())
        if len(self._times) == WARM_UP + 1:
            self._begin = metering.now()
        elif len(self._times) == self.stop - self.first + 1:
            self._joules = metering.since(self._begin)

    @property
    def step_joules(self) -> float | None:
        """Mean joules of a counted step; None if not measured, or if the window is too short."""
        times = self._times[WARM_UP:]
        if self._joules is None or times[-1] - times[0] < MIN_METERED:
            return None
        return self._joules / (len(times) - 1)

    @property
    def step_seconds(self) -> float:
        """The seconds of one step: the median over pairs of the steps that count."""
        pairs = itertools.pairwise(self._times[WARM_UP::2])
        return median((after - before) / 2 for before, after in pairs)

    @property
    def seconds(self) -> float:
        return self._times[-1] - self._times[0]
