"""A system configuration that is measured beside the default: its windows, their mean, its bounds.

What counts of a window is the logarithm of the ratio of its seconds a step to those of the default
beside it, so a machine that slows down for both says nothing. By Student's t the mean has an
interval.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import cos, exp, inf, log, pi, sin, sqrt, tan

from .knobs import SystemConfig

#: A gain below this is not worth a configuration of its own.
LEAST = 0.02
#: Windows that an interval needs, and after which an arm is judged by what is known.
FEWEST_WINDOWS, MOST_WINDOWS = 3, 12


@dataclass(slots=True)
class Arm:
    """A configuration at race: ``n`` windows, mean and sum of squares (Welford) of log ratios.

    ``out`` says why it no longer takes part, and is empty while it does. ``infeasible``: a trial
    cannot run with it.
    """

    config: SystemConfig
    n: int = 0
    mean: float = 0.0
    squares: float = 0.0
    out: str = ""
    infeasible: bool = False

    def saw(self, ratio: float) -> None:
        """Take in a window's seconds a step over the default's."""
        value = log(ratio)
        self.n += 1
        before = value - self.mean
        self.mean += before / self.n
        self.squares += before * (value - self.mean)

    def interval(self, alpha: float) -> tuple[float, float]:
        """Bounds of the mean log ratio, each wrong with probability ``alpha``."""
        if self.n < FEWEST_WINDOWS:
            return -inf, inf
        spread = sqrt(self.squares / (self.n - 1) / self.n) * student(1 - alpha, self.n - 1)
        return self.mean - spread, self.mean + spread

    @property
    def speedup(self) -> float:
        """Steps an hour over those under the default, as measured so far."""
        return exp(-self.mean)


@lru_cache(maxsize=256)
def student(probability: float, freedom: int) -> float:
    """The quantile of Student's t with ``freedom`` degrees, for a probability from 0.5 to 1.

    By bisection of the distribution's closed form (Abramowitz and Stegun 26.7.3 and 26.7.4).
    """
    low, high = 0.0, pi / 2
    for _ in range(60):
        angle = (low + high) / 2
        low, high = (
            (angle, high) if _between(angle, freedom) < 2 * probability - 1 else (low, angle)
        )
    return tan(low) * sqrt(freedom)


def _between(angle: float, freedom: int) -> float:
    """The chance of less than t either side of 0, where the tangent of ``angle`` is t / sqrt(v)."""
    term = cos(angle) if freedom % 2 else 1.0
    total = 0.0
    for power in range(2 + freedom % 2, freedom + 1, 2):
        total += term
        term *= cos(angle) ** 2 * (power - 1) / power
    if freedom % 2:
        return (angle + sin(angle) * total) * 2 / pi
    return sin(angle) * total
