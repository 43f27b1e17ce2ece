"""The worth of measuring another window, and the configuration expected to be the fastest.

Theory of operation. The estimate for a configuration is a normal distribution of its log ratio: the
logarithm of its seconds per step, divided by the default's. The distribution starts from a prior
(from earlier studies of the workload, from other workloads on the machine, or a wide one around 0),
and is updated after each window. The noise of a window is estimated from all windows. On a busy
machine a window may take ten times as long as usual. So only those windows of a configuration are
used that agree with their (lower) median within a factor of ``AGREEING``. For numbers of threads
all windows are used, since stalls are an effect of these. The prior of a configuration of several
knobs is the sum of the estimates for its parts, if these were measured.

A configuration is taken only after at least two windows that agree, unless earlier studies of the
workload have measured it. Two kinds of configurations are measured before all others: the one that
seems fastest but may not be taken yet, and one that was far slower in its first window. Otherwise
the next configuration follows from the knowledge gradient. This is the expected decrease of the
lowest mean after one more window of the configuration (Frazier, Powell and Dayanik, "A
knowledge-gradient policy for sequential information collection", SIAM J. Control Optim. 47, 2008).
Multiplied by the seconds of training to come, it is the time that the window may save, and windows
are measured while that exceeds their cost. There is also a bound on the loss: the time spent must
not exceed ``MAX_LOSS`` of the seconds to come plus the time that the best configuration saves with
good certainty. Only a second window of a configuration is exempt from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import erf, exp, inf, log, pi, sqrt

from ....profiling.knobs.knobs import SystemConfig

#: Standard deviation of the prior for a knob without any measurements. A knob seldom changes the
#: time of a step by more than a factor of two.
PRIOR_ERROR = 0.35
#: The same for numbers of threads, which may make a step ten times slower if threads wait for each
#: other.
PRIOR_ERROR_THREADS = 1.0
#: Standard deviation of the effect of several knobs together beyond the sum of their single
#: effects.
INTERACTION_ERROR = 0.15
#: The assumed noise of one window (standard deviation of its log ratio) before any was repeated,
#: and the number of windows that this assumption weighs as much as.
NOISE, NOISE_WINDOWS = 0.1, 3
#: The least noise of a window that is assumed.
LEAST_NOISE = 0.01
#: The part of the seconds of training to come that may be spent without any gain.
MAX_LOSS = 0.03
#: Windows of a configuration agree within this factor. If its first window is slower than the
#: default by more than this factor, a second one is measured.
AGREEING = 1.3
#: The least number of windows before a configuration without earlier measurements is taken.
MIN_WINDOWS = 2
#: If one more window can save less than this part of the time to come, nothing is measured.
WORTH_MEASURING = 0.01
#: The least gain that is worth a configuration other than the default.
MIN_GAIN = 0.02
#: A configuration is not taken if the default is faster with a probability above this.
MAX_DOUBT = 0.05


@dataclass(frozen=True, slots=True)
class Belief:
    """An estimate of a log ratio: a normal distribution."""

    mean: float
    error: float
    #: True for a prior without any window of this workload.
    guessed: bool = False

    @property
    def doubt(self) -> float:
        """The probability that the default is faster."""
        return 1 - _cumulative(-self.mean / self.error)


def unknown(config: SystemConfig) -> Belief:
    """Return the prior for a configuration without any measurements."""
    threads = any(name == "threads" for name, _ in config)
    error = PRIOR_ERROR_THREADS if threads else PRIOR_ERROR * sqrt(len(config))
    return Belief(0.0, error, guessed=True)


@dataclass(slots=True)
class Beliefs:
    """Estimates of the log ratios of the configurations from which a study may choose."""

    #: The estimates before the first window, by configuration.
    priors: dict[SystemConfig, Belief]
    #: The log ratios of measured windows, by configuration.
    seen: dict[SystemConfig, list[float]] = field(default_factory=dict)
    #: For each measured window, the log of the default's time after it divided by that before it.
    drifts: list[float] = field(default_factory=list)

    def observe(self, config: SystemConfig, ratio: float, drift: float = 1.0) -> None:
        """Add a window: its seconds per step over the mean of the default's two windows.

        ``drift`` is the default's seconds per step after the window divided by those before it.
        """
        self.seen.setdefault(config, []).append(log(ratio))
        self.drifts.append(log(drift))

    def drop(self, config: SystemConfig) -> None:
        """Drop a configuration that cannot be run, and all configurations that include it."""
        for each in [each for each in self.priors if set(each) >= set(config)]:
            del self.priors[each]

    @property
    def noise(self) -> float:
        """The standard deviation of a window's log ratio, estimated from all windows.

        Let v be the variance of the logarithm of one measured time. A drift is the difference of
        two such values, so its variance is 2 v. A log ratio compares one time with the mean of two
        others, so its variance is 1.5 v.
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
        """Return the estimate for a configuration, from its prior and its windows."""
        prior, values = self._prior(config), self._agreeing(config)
        return _updated(prior, sum(values), len(values), self.noise)

    def _agreeing(self, config: SystemConfig) -> list[float]:
        """Return the log ratios of a configuration's windows that agree with each other."""
        values = self.seen.get(config, [])
        if len(values) < 2 or any(name == "threads" for name, _ in config):
            return values
        middle = sorted(values)[(len(values) - 1) // 2]
        return [value for value in values if abs(value - middle) <= log(AGREEING)]

    def _prior(self, config: SystemConfig) -> Belief:
        """Return the estimate without the windows; for several knobs, the sum of the parts'."""
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

        ``seconds`` is the time of the training to come under the default.
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
        """The configuration to train with; () for the default."""
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
        """Return a configuration to measure for one more window before it is judged.

        Returns () if there is none.
        """
        for config, values in self.seen.items():
            if len(values) == 1 and values[0] > log(AGREEING) and config in self.priors:
                return config
        leader = min(self.priors, key=lambda each: (self.belief(each).mean, each), default=())
        if not leader or self._is_surely_faster(leader):
            return ()
        return leader if self.belief(leader).mean < log(1 - MIN_GAIN) else ()

    @property
    def settled(self) -> bool:
        """True if no window would be worth measuring, however long the training to come is."""
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

        ``seconds`` is the time of the training to come under the default, ``spent`` the cost of all
        windows so far, and ``costs`` the cost of one more window of each configuration.
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
    """Return the estimate after ``n`` values with this sum and this standard deviation each."""
    if not n:
        return prior
    precision = prior.error**-2 + n * noise**-2
    mean = (prior.mean * prior.error**-2 + total * noise**-2) / precision
    return Belief(mean, precision**-0.5)


def _cumulative(x: float) -> float:
    return 0.5 * (1 + erf(x / sqrt(2)))


def _density(x: float) -> float:
    return exp(-x * x / 2) / sqrt(2 * pi)
