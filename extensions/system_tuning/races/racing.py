"""Races: the system configurations of one workload, judged by one of the probing strategies.

Theory of operation. Each configuration except the default is an arm (``arm``). A *rule* is called
with the arms after new windows. It takes out the arms that cannot win any more, and returns the
winner once it is decided. The default rule is ``by_confidence``: an arm is out as soon as its
interval shows that it is not faster than the default by ``MIN_GAIN``, or that it is slower than the
leader (a Hoeffding race with t intervals; Maron and Moore, "The racing algorithm: model selection
for lazy learners", Artificial Intelligence Review 11, 1997). The error ``ALPHA`` is divided among
all arms and all times at which they are judged (Bonferroni). The race is decided when at most one
arm is left, and a remaining arm must be faster than the default with confidence. The other rules
are in ``halving``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from ....base.errors import UsageError
from ....profiling.knobs.knobs import SystemConfig
from .arm import MAX_WINDOWS, MIN_GAIN, MIN_WINDOWS, Arm
from .halving import by_epochs, by_halving

#: The probability that any configuration of a race is judged wrongly.
ALPHA = 0.05


def by_confidence(arms: Sequence[Arm]) -> SystemConfig | None:
    """Judge by confidence bounds, as the module's docstring describes.

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
    """Return the probability with which one bound of one of ``arms`` arms may be wrong."""
    looks = MAX_WINDOWS - MIN_WINDOWS + 1
    return ALPHA / (looks * max(1, arms))


@dataclass(frozen=True, slots=True)
class ProbingStrategy:
    """A way to choose the arms that are tried at a time, to measure them, and to judge them."""

    #: The rule by which arms are judged.
    judge: Callable[[Sequence[Arm]], SystemConfig | None]
    #: True if a model is asked for a few arms at a time; otherwise all are entered at once.
    asks: bool = False
    #: True if an arm is tried for a whole epoch of a trial; otherwise in windows of steps.
    by_epoch: bool = False


#: Probing strategies by name.
PROBING = {
    "race": ProbingStrategy(by_confidence),
    "bandit": ProbingStrategy(by_halving),
    "bayesian": ProbingStrategy(by_confidence, asks=True),
    "grid": ProbingStrategy(by_epochs, by_epoch=True),
}


def check_probing(name: object) -> str:
    """Return ``name`` if it is the name of a probing strategy.

    Raises ``UsageError``, with the known names, if it is not.
    """
    if not (isinstance(name, str) and name in PROBING):
        raise UsageError.refuse("system.probing", name, ", ".join(PROBING))
    return name


@dataclass(slots=True)
class Race:
    """The arms of one workload, judged by the strategy ``PROBING[probing]``.

    ``over`` is True if the race is decided. ``chosen`` is the winner's configuration, or () if no
    arm beats the default. ``proposals`` is the number of times that a model was asked for arms.
    """

    probing: str = "race"
    arms: list[Arm] = field(default_factory=list)
    over: bool = False
    chosen: SystemConfig = ()
    proposals: int = 0

    def enter(self, configs: Iterable[SystemConfig]) -> None:
        """Add the configurations that are not arms yet. If there are any, the race continues."""
        known_configs = {arm.config for arm in self.arms}
        new = [Arm(config) for config in configs if config and config not in known_configs]
        self.arms += new
        self.over = self.over and not new

    def open(self) -> tuple[SystemConfig, ...]:
        """Return the configurations in the race, those with the fewest windows first."""
        remaining = [arm for arm in self.arms if not arm.out]
        return tuple(arm.config for arm in sorted(remaining, key=lambda arm: arm.n))

    def has(self, config: SystemConfig) -> bool:
        """Return True if ``config`` is one of the arms."""
        return any(arm.config == config for arm in self.arms)

    def observe(self, config: SystemConfig, ratio: float) -> None:
        """Add the result of a window, unless its arm is unknown or out."""
        for arm in self.arms:
            if arm.config == config and not arm.out:
                arm.observe(ratio)

    def mark_infeasible(self, config: SystemConfig, why: str) -> None:
        """Rule out ``config``, with which no trial can run, and all arms that include it."""
        for arm in self.arms:
            if set(arm.config) >= set(config):
                arm.out, arm.infeasible = why or "a trial cannot run with it", True
        if set(self.chosen) >= set(config):
            self.chosen = ()
        self.judge()

    def judge(self) -> None:
        """Take out the arms that cannot win any more, and end the race if it is decided."""
        winner = PROBING[self.probing].judge(self.arms)
        if winner is not None:
            self.over, self.chosen = True, winner
