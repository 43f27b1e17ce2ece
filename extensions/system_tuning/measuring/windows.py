"""Cuts an epoch into windows that try exact system configurations, and compares them.

Theory of operation. Windows alternate between the trial's own configuration and a candidate; the
candidates take turns. All steps are the epoch's own, so only the additional time of a slow
candidate is lost. A candidate's seconds and joules per step are compared with the mean of the
windows before and after it.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from ....profiling.knobs.knobs import SystemConfig
from ....tasks.process.pipe import Window
from ....tasks.system.system import System
from ....tasks.system.windows import MIN_STEPS, WARM_UP, StepWindow

#: The most windows of one epoch that run a candidate.
MAX_WINDOWS = 12


def interleave(own: SystemConfig, tried: Sequence[SystemConfig], steps: int) -> list[StepWindow]:
    """Cut an epoch of ``steps`` steps into windows that try ``tried``; empty if it is too short."""
    probes = min(MAX_WINDOWS, (steps // (WARM_UP + MIN_STEPS) - 1) // 2)
    if probes < 1 or not tried:
        return []
    count = 2 * probes + 1
    cuts = [steps * i // count for i in range(count + 1)]
    windows = []
    for i, (first, stop) in enumerate(itertools.pairwise(cuts)):
        config = tried[i // 2 % len(tried)] if i % 2 else None
        system = System(own) if config is None else System({**dict(own), **dict(config)}.items())
        windows.append(StepWindow(system, first, stop, config))
    return windows


def results(done: Sequence[StepWindow]) -> list[Window]:
    """Return the result of each window of a candidate, once the epoch has ended."""
    windows = []
    for before, window, after in zip(done[::2], done[1::2], done[2::2], strict=False):
        assert window.config is not None
        usual = (before.step_seconds + after.step_seconds) / 2
        ratio = window.step_seconds / usual
        wasted = max(0.0, window.seconds * (1 - 1 / ratio))
        joules = relative(window.step_joules, before.step_joules, after.step_joules)
        windows.append((window.config, ratio, wasted, joules))
    return windows


def relative(tried: float | None, before: float | None, after: float | None) -> float | None:
    """Return a window's joules over its two neighbours' mean; None if any is unknown or 0."""
    if not tried or not before or not after:
        return None
    return tried / ((before + after) / 2)
