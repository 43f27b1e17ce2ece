"""Arms: configurations that are measured against the default, with their means and intervals.

The result of a window is a log ratio: the logarithm of its seconds per step, divided by those of
the default's windows before and after it. So a machine that becomes slower for both has no effect.
The interval of the mean follows from Student's t distribution.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import cos, exp, inf, log, pi, sin, sqrt, tan

from ....profiling.knobs.knobs import SystemConfig

#: The least gain that is worth a configuration other than the default.
MIN_GAIN = 0.02
#: The least number of windows for an interval, and the number after which an arm is judged by its
#: mean.
MIN_WINDOWS, MAX_WINDOWS = 3, 12


@dataclass(slots=True)
class Arm:
    """A configuration in a race, with the results of its windows."""

    #: The configuration.
    config: SystemConfig
    #: Number of windows that were measured.
    n: int = 0
    #: The mean of the log ratios.
    mean: float = 0.0
    #: The sum of squared deviations from the mean (Welford).
    squares: float = 0.0
    #: The reason why the arm is out of the race; empty while it takes part.
    out: str = ""
    #: True if trials cannot run with this configuration.
    infeasible: bool = False

    def observe(self, ratio: float) -> None:
        """Add the result of a window: its seconds per step divided by the default's."""
        value = log(ratio)
        self.n += 1
        delta = value - self.mean
        self.mean += delta / self.n
        self.squares += delta * (value - self.mean)

    def interval(self, alpha: float) -> tuple[float, float]:
        """Return bounds of the mean log ratio. Each is wrong with probability ``alpha``."""
        if self.n < MIN_WINDOWS:
            return -inf, inf
        margin = sqrt(self.squares / (self.n - 1) / self.n) * student_quantile(
            1 - alpha, self.n - 1
        )
        return self.mean - margin, self.mean + margin

    @property
    def speedup(self) -> float:
        """Steps per hour divided by those under the default, as measured so far."""
        return exp(-self.mean)


@lru_cache(maxsize=256)
def student_quantile(probability: float, degrees: int) -> float:
    """Return the quantile of Student's t with ``degrees`` degrees of freedom.

    ``probability`` is from 0.5 to 1. The quantile is found by bisection of the distribution's
    closed form (Abramowitz and Stegun 26.7.3 and 26.7.4).
    """
    low, high = 0.0, pi / 2
    for _ in range(60):
        angle = (low + high) / 2
        low, high = (
            (angle, high)
            if _central_probability(angle, degrees) < 2 * probability - 1
            else (low, angle)
        )
    return tan(low) * sqrt(degrees)


def _central_probability(angle: float, degrees: int) -> float:
    """Return the probability of a value from -t to t, with t = sqrt(degrees) * tan(angle)."""
    term = cos(angle) if degrees % 2 else 1.0
    total = 0.0
    for power in range(2 + degrees % 2, degrees + 1, 2):
        total += term
        term *= cos(angle) ** 2 * (power - 1) / power
    if degrees % 2:
        return (angle + sin(angle) * total) * 2 / pi
    return sin(angle) * total
