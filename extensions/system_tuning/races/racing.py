"""Races: the system configurations of one workload, judged by one of the probing strategies.

Theory of operation. Each configuration except the default is an arm (``arm``). A *rule* is given
the arms after new windows. It puts out the arms that cannot win any more, and names the winner once
that is decided. ``by_confidence`` is ours: an arm is out as soon as its interval says that it is
not ``MIN_GAIN`` faster than the default, or slower than the leader (a Hoeffding race with t
intervals; Maron and Moore, "The racing algorithm: model selection for lazy learners", Artificial
Intelligence Review 11, 1997). The error ``ALPHA`` is divided among all arms and all looks at them
(Bonferroni). The race is decided when one arm or none is left; one that is left must surely be
faster than the default. The other rules are in ``halving``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from ....base.errors import UsageError
from ....profiling.knobs.knobs import SystemConfig
from .arm import MAX_WINDOWS, MIN_GAIN, MIN_WINDOWS, Arm
from .halving import by_epochs, by_halving

#: The probability that any configuration is judged wrongly.
ALPHA = 0.05


def by_confidence(arms: Sequence[Arm]) -> SystemConfig | None:
    """Judge by confidence bounds, as described above.

    Returns the winner, () for the default, or None if it is not decided yet.
    """
    remaining = [arm for arm in arms if not arm.out]
    alpha = bound_alpha(len(arms))
    bounds = {arm.config: arm.interval(alpha) for arm in remaining}
    leader = min(remaining, key=lambda arm: bounds[arm.config][1], default=None)
    for arm in remaining:
        low, high = bounds[arm.config]
        if low > -MIN_GAIN or (arm.n >= MAX_WINDOWS and high >= 0):
            arm.out = "no faster than the default"
        elif leader is not None and low > bounds[leader.config][1]:
            arm.out = "slower than another"
    remaining = [arm for arm in remaining if not arm.out]
    if not remaining:
        return ()
    if len(remaining) > 1 and not all(arm.n >= MAX_WINDOWS for arm in remaining):
        return None
    best = min(remaining, key=lambda arm: arm.mean)
    return best.config if bounds[best.config][1] < 0 else None


def bound_alpha(arms: int) -> float:
    """Return the probability with which a bound of one of ``arms`` may be wrong at one look."""
    looks = MAX_WINDOWS - MIN_WINDOWS + 1
    return ALPHA / (looks * max(1, arms))


@dataclass(frozen=True, slots=True)
class ProbingStrategy:
    """A way to choose the arms that are tried at once, to measure them, and to judge them."""

    #: The rule.
    judge: Callable[[Sequence[Arm]], SystemConfig | None]
    #: True if a model is asked for a few arms at a time; else all are entered at once.
    asks: bool = False
    #: True if an arm is tried for a whole epoch of a trial, else in windows of steps.
    by_epoch: bool = False


#: Probing strategies by name.
PROBING = {
    "race": ProbingStrategy(by_confidence),
    "bandit": ProbingStrategy(by_halving),
    "bayesian": ProbingStrategy(by_confidence, asks=True),
    "grid": ProbingStrategy(by_epochs, by_epoch=True),
}


def check_probing(name: object) -> str:
    """Return ``name`` as a user gives it.

    Raises ``UsageError``, with the known names, for another one.
    """
    if not (isinstance(name, str) and name in PROBING):
        raise UsageError.refuse("system.probing", name, ", ".join(PROBING))
    return name


@dataclass(slots=True)
class Race:
    """The arms of one workload, judged as the strategy ``PROBING[probing]`` says.

    ``over``: nothing is left to learn. ``chosen`` is the winner's configuration; () if the default
    is not beaten. ``proposals`` counts how many times a model was asked for arms.
    """

    probing: str = "race"
    arms: list[Arm] = field(default_factory=list)
    over: bool = False
    chosen: SystemConfig = ()
    proposals: int = 0

    def enter(self, configs: Iterable[SystemConfig]) -> None:
        """Add arms that are not in it yet. If there are any, the race goes on."""
        known_configs = {arm.config for arm in self.arms}
        new = [Arm(config) for config in configs if config and config not in known_configs]
        self.arms += new
        self.over = self.over and not new

    def open(self) -> tuple[SystemConfig, ...]:
        """Return the configurations still in the race, those with the fewest windows first."""
        remaining = [arm for arm in self.arms if not arm.out]
        return tuple(arm.config for arm in sorted(remaining, key=lambda arm: arm.n))

    def has(self, config: SystemConfig) -> bool:
        """Return True if ``config`` is one of the arms."""
        return any(arm.config == config for arm in self.arms)

    def observe(self, config: SystemConfig, ratio: float) -> None:
        """Take in a window. One of an arm that is unknown or out is ignored."""
        for arm in self.arms:
            if arm.config == config and not arm.out:
                arm.observe(ratio)

    def mark_infeasible(self, config: SystemConfig, why: str) -> None:
        """Rule out ``config``, under which no trial can run, and all that include it."""
        for arm in self.arms:
            if set(arm.config) >= set(config):
                arm.out, arm.infeasible = why or "a trial cannot run with it", True
        if set(self.chosen) >= set(config):
            self.chosen = ()
        self.judge()

    def judge(self) -> None:
        """Put out the arms that cannot win any more, and end the race if it is decided."""
        winner = PROBING[self.probing].judge(self.arms)
        if winner is not None:
            self.over, self.chosen = True, winner
