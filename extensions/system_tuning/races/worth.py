"""The worth of another window, and which configuration is expected to be the fastest.

Theory of operation. What is believed of a configuration is a normal distribution of its log ratio,
the logarithm of its seconds a step over the default's. It begins with a prior (earlier studies of
the workload, those of others on the machine, or a wide one around 0) and is updated by each window.
The noise of a window is estimated from all of them. On a busy machine one may take ten times as
long. So those windows of a configuration count that agree with their (lower) median within a factor
of ``AGREEING``, but for numbers of threads, to which stalls belong. The belief in a configuration
of several knobs begins with the sum of those in its parts, as far as these were measured.

Unless earlier studies of the workload have measured it, a configuration is taken after two windows
at least that agree. The one that seems fastest and may not be taken yet is measured before any
other, and so is one that was far slower in its first window. Else the index decides, which is the
knowledge gradient: how much lower the lowest mean is expected to be after one more window of it
(Frazier, Powell and Dayanik, "A knowledge-gradient policy for sequential information collection",
SIAM J. Control Optim. 47, 2008). Times the seconds ahead, this is what the window may save. It is
measured while that exceeds its cost. A bound on loss holds besides: but for a second window, what
was spent must not exceed ``MAX_LOSS`` of the seconds ahead plus what the best configuration saves
with good certainty.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import erf, exp, inf, log, pi, sqrt

from ....profiling.knobs.knobs import SystemConfig

#: Standard deviation of the prior belief in a knob of which nothing is known, which seldom changes
#: the time of a step by more than a factor of two.
PRIOR_ERROR = 0.35
#: The same for numbers of threads, which may cost ten times where threads wait for each other.
PRIOR_ERROR_THREADS = 1.0
#: Standard deviation of what knobs do together beyond the sum of what each does.
INTERACTION_ERROR = 0.15
#: Noise of one window (standard deviation of its log ratio) before any was repeated, and how many
#: windows that assumption counts for.
NOISE, NOISE_WINDOWS = 0.1, 3
#: The least noise of a window.
LEAST_NOISE = 0.01
#: The part of the seconds ahead that may be spent without return.
MAX_LOSS = 0.03
#: Windows of a configuration agree within this factor. One that is slower by more in its first is
#: measured a second time.
AGREEING = 1.3
#: The fewest windows of a configuration of which nothing was known before it is taken.
MIN_WINDOWS = 2
#: With less than this part of the time to be saved by one more window, nothing is measured.
WORTH_MEASURING = 0.01
#: A gain below this is not worth another configuration than the default.
MIN_GAIN = 0.02
#: A configuration is not taken if the default is faster with a higher probability than this.
MAX_DOUBT = 0.05


@dataclass(frozen=True, slots=True)
class Belief:
    """A normal distribution of a log ratio."""

    mean: float
    error: float
    #: True for a prior that no window of the workload supports.
    guessed: bool = False

    @property
    def doubt(self) -> float:
        """The probability that the default is faster."""
        return 1 - _cumulative(-self.mean / self.error)


def unknown(config: SystemConfig) -> Belief:
    """Return the belief in a configuration of which nothing is known."""
    threads = any(name == "threads" for name, _ in config)
    error = PRIOR_ERROR_THREADS if threads else PRIOR_ERROR * sqrt(len(config))
    return Belief(0.0, error, guessed=True)


@dataclass(slots=True)
class Beliefs:
    """Beliefs in the configurations that a study may choose from."""

    #: Beliefs from before the first window, by configuration.
    priors: dict[SystemConfig, Belief]
    #: The log ratios of the windows that were measured, by configuration.
    seen: dict[SystemConfig, list[float]] = field(default_factory=dict)
    #: The log ratio of the default's window after each of them to the one before it.
    drifts: list[float] = field(default_factory=list)

    def observe(self, config: SystemConfig, ratio: float, drift: float = 1.0) -> None:
        """Take in a window: its seconds a step over the mean of the default's before and after it.

        ``drift`` is the ratio of those after it to those before it.
        """
        self.seen.setdefault(config, []).append(log(ratio))
        self.drifts.append(log(drift))

    def drop(self, config: SystemConfig) -> None:
        """Leave out what cannot be run, and all configurations that include it."""
        for each in [each for each in self.priors if set(each) >= set(config)]:
            del self.priors[each]

    @property
    def noise(self) -> float:
        """The standard deviation of a window's log ratio, as far as is known.

        A reading of variance v gives a drift of variance 2 v and, over the mean of two, a log ratio
        of variance 1.5 v.
        """
        squares, degrees = NOISE**2 * NOISE_WINDOWS, float(NOISE_WINDOWS)
        drifts = [min(abs(drift), 2 * log(AGREEING)) for drift in self.drifts]
        squares += 0.75 * sum(drift**2 for drift in drifts)
        degrees += len(drifts)
        for config in self.seen:
            values = self._agreeing(config)
            mean = sum(values) / len(values)
            squares += sum((value - mean) ** 2 for value in values)
            degrees += len(values) - 1
        return max(LEAST_NOISE, sqrt(squares / degrees))

    def belief(self, config: SystemConfig) -> Belief:
        """Return the belief about a configuration, from its prior and its windows."""
        prior, values = self._prior(config), self._agreeing(config)
        return _updated(prior, sum(values), len(values), self.noise)

    def _agreeing(self, config: SystemConfig) -> list[float]:
        """Return the log ratios of windows that agree with each other."""
        values = self.seen.get(config, [])
        if len(values) < 2 or any(name == "threads" for name, _ in config):
            return values
        middle = sorted(values)[(len(values) - 1) // 2]
        return [value for value in values if abs(value - middle) <= log(AGREEING)]

    def _prior(self, config: SystemConfig) -> Belief:
        """Return the belief from before its windows: for several knobs the sum of their parts."""
        prior = self.priors[config]
        parts = [(pair,) for pair in config]
        if len(parts) < 2 or not any(self.seen.get(part) for part in parts):
            return prior
        beliefs = [self.belief(part) for part in parts if part in self.priors]
        if len(beliefs) < len(parts):
            return prior
        mean = sum(each.mean for each in beliefs)
        error = sqrt(sum(each.error**2 for each in beliefs) + INTERACTION_ERROR**2)
        return _updated(Belief(mean, error), prior.mean, 1, prior.error)

    def worth(self, config: SystemConfig, seconds: float) -> float:
        """Return the seconds that one more window of ``config`` is expected to save.

        ``seconds``: those ahead under the default.
        """
        own, noise = self.belief(config), self.noise
        change = own.error**2 / sqrt(own.error**2 + noise**2)
        means = [0.0, *(self.belief(each).mean for each in self.priors if each != config)]
        lowest = min(means)
        away = -abs(own.mean - lowest) / change
        gain = change * (_density(away) + away * _cumulative(away))
        return seconds * exp(min(lowest, own.mean)) * gain

    @property
    def best(self) -> SystemConfig:
        """The configuration to run with; () for the default."""
        able = [each for each in self.priors if self._is_surely_faster(each)]
        return min(able, key=lambda each: (self.belief(each).mean, each), default=())

    def _is_surely_faster(self, config: SystemConfig) -> bool:
        if self._is_unproven(config):
            return False
        own = self.belief(config)
        return own.mean < log(1 - MIN_GAIN) and own.doubt <= MAX_DOUBT

    def _is_unproven(self, config: SystemConfig) -> bool:
        return self.priors[config].guessed and len(self._agreeing(config)) < MIN_WINDOWS

    def _promising(self) -> SystemConfig:
        """Return a configuration that was judged too early, if there is one; else ()."""
        for config, values in self.seen.items():
            if len(values) == 1 and values[0] > log(AGREEING) and config in self.priors:
                return config
        leader = min(self.priors, key=lambda each: (self.belief(each).mean, each), default=())
        if not leader or self._is_surely_faster(leader):
            return ()
        return leader if self.belief(leader).mean < log(1 - MIN_GAIN) else ()

    @property
    def settled(self) -> bool:
        """True if no window would be worth measuring, however much time is ahead."""
        if self._promising():
            return False
        return all(self.worth(each, 1.0) < WORTH_MEASURING for each in self.priors)

    def in_hand(self) -> float:
        """Return the part of the time that the best configuration saves with good certainty."""
        if not (best := self.best):
            return 0.0
        own = self.belief(best)
        return max(0.0, 1 - exp(own.mean + own.error))

    def next(
        self, seconds: float, spent: float, costs: Sequence[tuple[SystemConfig, float]]
    ) -> SystemConfig | None:
        """Return the configuration to measure next; None if no window is worth its cost.

        ``seconds`` are those ahead under the default, ``spent`` what windows have cost so far, and
        ``costs`` what one more of each configuration would.
        """
        allowed = seconds * (MAX_LOSS + self.in_hand()) - spent
        if again := self._promising():
            prior, cost = self.priors[again], dict(costs)[again]
            saved = seconds * (1 - exp(min(self.belief(again).mean, prior.mean - prior.error)))
            if saved > cost and (cost <= allowed or len(self.seen.get(again, ())) == 1):
                return again
        able = [
            (self.worth(config, seconds) - cost, config)
            for config, cost in costs
            if config in self.priors and cost <= allowed
        ]
        value, config = max(able, default=(-inf, ()))
        return config if value > 0 else None


def _updated(prior: Belief, total: float, n: int, noise: float) -> Belief:
    """Return the belief after ``n`` readings with this sum, each with this standard deviation."""
    if not n:
        return prior
    precision = prior.error**-2 + n * noise**-2
    mean = (prior.mean * prior.error**-2 + total * noise**-2) / precision
    return Belief(mean, precision**-0.5)


def _cumulative(x: float) -> float:
    return 0.5 * (1 + erf(x / sqrt(2)))


def _density(x: float) -> float:
    return exp(-x * x / 2) / sqrt(2 * pi)
