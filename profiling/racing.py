"""A race between system configurations: which one is faster than the default, by how much, surely.

Theory of operation. A *window* is a few training steps under one configuration, between windows
under the default; what counts is the logarithm of the ratio of their seconds a step, so a machine
that slows down for both says nothing. The windows of a configuration have a mean and a standard
deviation, and by Student's t the mean's interval. A configuration is out as soon as its interval
says that it is not ``LEAST`` faster than the default, or slower than the leader (a Hoeffding race
with t intervals; Maron and Moore, "The racing algorithm: model selection for lazy learners",
Artificial Intelligence Review 11, 1997). The error ``ALPHA`` is shared among all configurations and
all looks at them (Bonferroni). The race is over when one or none is left; the one that is left must
be faster surely.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from math import cos, exp, inf, log, pi, sin, sqrt, tan

from .knobs import SystemConfig

#: A gain below this is not worth a configuration of its own.
LEAST = 0.02
#: The chance that any configuration is judged wrongly.
ALPHA = 0.05
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


@dataclass(slots=True)
class Race:
    """The arms of one workload. ``over`` where there is nothing left to be learnt.

    ``chosen`` is the winner's configuration: () where the default is not surely beaten.
    """

    arms: list[Arm] = field(default_factory=list)
    over: bool = False
    chosen: SystemConfig = ()

    def enter(self, configs: Iterable[SystemConfig]) -> None:
        """Add arms that are not in it; the race goes on where there are any."""
        known = {arm.config for arm in self.arms}
        new = [Arm(config) for config in configs if config and config not in known]
        self.arms += new
        self.over = self.over and not new

    def open(self) -> tuple[SystemConfig, ...]:
        """Those still at race, least known first."""
        left = [arm for arm in self.arms if not arm.out]
        return tuple(arm.config for arm in sorted(left, key=lambda arm: arm.n))

    def saw(self, config: SystemConfig, ratio: float) -> None:
        """Take in a window; what is no arm, or out, says nothing."""
        for arm in self.arms:
            if arm.config == config and not arm.out:
                arm.saw(ratio)

    def fails(self, config: SystemConfig, why: str) -> None:
        """No trial can run under ``config``, nor under any with the same change."""
        for arm in self.arms:
            if set(arm.config) >= set(config):
                arm.out, arm.infeasible = why or "a trial cannot run with it", True
        if set(self.chosen) >= set(config):
            self.chosen = ()
        self.judge()

    def judge(self) -> None:
        """Put out who cannot win any more, and end the race where it is decided."""
        left = [arm for arm in self.arms if not arm.out]
        looks = MOST_WINDOWS - FEWEST_WINDOWS + 1
        alpha = ALPHA / (looks * max(1, len(self.arms)))
        bounds = {arm.config: arm.interval(alpha) for arm in left}
        leader = min(left, key=lambda arm: bounds[arm.config][1], default=None)
        for arm in left:
            low, high = bounds[arm.config]
            if low > -LEAST or (arm.n >= MOST_WINDOWS and high >= 0):
                arm.out = "no faster than the default"
            elif leader is not None and low > bounds[leader.config][1]:
                arm.out = "slower than another"
        left = [arm for arm in left if not arm.out]
        tied = all(arm.n >= MOST_WINDOWS for arm in left)
        if len(left) > 1 and not tied:
            return
        if not left:
            self.over, self.chosen = True, ()
            return
        best = min(left, key=lambda arm: arm.mean)
        if bounds[best.config][1] < 0:
            self.over, self.chosen = True, best.config


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
