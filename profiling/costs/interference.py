"""Interference: the measured slowdown of epochs when several trials share a device.

Theory of operation. The trials of a study differ by more than the cost of sharing, so epochs of a
trial are compared with epochs of the same trial. Let x be the logarithm of an epoch's seconds. Take
a trial with m epochs as one of k - 1 trials on its device, and n epochs as one of k. It shows that
the step from k - 1 to k costs mean(x_k) - mean(x_k-1), with variance s² (1/m + 1/n), where s² is
the variance of epochs of one trial under equal conditions. The steps of all trials are averaged
with weights mn / (m + n).

k trials do k / seconds(k) epochs a second in total, so the k-th trial gains log(k / (k - 1)) less
the step from k - 1 to k. A number of trials is *tried* until its gain is known. It is kept if the
gain exceeds ``MIN_GAIN`` by more than its noise, and otherwise not used. If epochs become slower or
faster than earlier ones of the same trial under equal conditions, everything is measured again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

from .segment_costs import ALPHA
from .table import CHANGE_FACTOR, SHORTEST_EPOCH

#: The least relative growth of total speed that justifies one more trial on a device.
MIN_GAIN = 0.03
#: The number of epochs of a trial that must be known before another trial joins it.
MIN_BASELINE = 2
#: The least weight of a step that is judged (two epochs before it and two after).
MIN_WEIGHT = 1.0
#: The number of shared epochs after which a gain that is still within its noise counts as none.
MAX_SHARED_EPOCHS = 24
#: The number of standard deviations that a gain must exceed.
SIGNIFICANCE = 2.0
#: Largest distance of an epoch from its trial's mean (logarithm). An epoch further away counts as
#: this far. Four such epochs in a row move ``drift`` by ``CHANGE_FACTOR``; one does not.
OUTLIER = 1.5 * math.log(CHANGE_FACTOR)
#: Length (seconds) below which an epoch is taken to be only overhead, so that every slot is used.
SHARE_BELOW = 0.001
#: The number of epochs that a trial's means remember.
MEMORY = 20.0
#: The prior deviation of a trial's epochs (of the logarithm), and the number of epochs as which it
#: counts.
PRIOR_DEVIATION, PRIOR_EPOCHS = 0.05, 2.0


class Mean(NamedTuple):
    """The mean of the logarithms of ``n`` epochs' seconds."""

    n: float
    mean: float


class SharingStep(NamedTuple):
    """Sums over trials: the weights, and the weights times the changes of log seconds."""

    weight: float
    sum: float


class Verdict(NamedTuple):
    """The number of trials of a study that a device may hold (``slots``), and the reason.

    ``exploring`` is True if the last of these trials is only there to measure the gain. ``judged``
    is the number of trials judged last. ``gain`` is the total speed with that number divided by the
    speed with one trial less (None if nothing was judged), and ``error`` is its relative deviation.
    """

    slots: int
    exploring: bool = False
    judged: int = 1
    gain: float | None = None
    error: float = 0.0


@dataclass(slots=True)
class Interference:
    """Measurements of one study on one kind of device."""

    #: Means of the logarithms of epochs' seconds, by trial and number of trials at work.
    trials: dict[str, dict[int, Mean]] = field(default_factory=dict)
    #: Steps, by the number of trials at work after the step.
    steps: dict[int, SharingStep] = field(default_factory=dict)
    #: The number of measured epochs, by number of trials at work.
    shared: dict[int, int] = field(default_factory=dict)
    #: The sum of squared deviations of epochs from their trial's mean.
    squares: float = 0.0
    #: The degrees of freedom of ``squares``.
    degrees: float = 0.0
    #: The difference of the newest epochs from their trial's mean (logarithm).
    drift: float = 0.0
    #: The most memory that a trainer was seen to use (bytes); 0 if not known.
    memory: int = 0
    #: True if the newest epoch was shorter than ``SHARE_BELOW``.
    short: bool = False

    def observe(self, trial: str, at_work: int, seconds: float) -> None:
        """Add an epoch of ``trial``, throughout which ``at_work`` trials were on the device."""
        value = math.log(max(SHORTEST_EPOCH, seconds))
        self.short = seconds < SHARE_BELOW
        means = self.trials.setdefault(trial, {})
        before = means.get(at_work, Mean(0.0, value))
        deviation = max(-OUTLIER, min(OUTLIER, value - before.mean))
        if before.n:
            self.squares += deviation * deviation * before.n / (before.n + 1.0)
            self.degrees += 1.0
            self.drift += ALPHA * (deviation - self.drift)
            if abs(self.drift) > math.log(CHANGE_FACTOR):
                self._reset_measurements()
                means, before, deviation = self.trials.setdefault(trial, {}), Mean(0.0, value), 0.0
        self._count(means, at_work, -1)
        n = min(before.n + 1.0, MEMORY)
        means[at_work] = Mean(n, before.mean + deviation / n)
        self._count(means, at_work, +1)
        self.shared[at_work] = self.shared.get(at_work, 0) + 1

    def has_baseline(self, trial: str, at_work: int) -> bool:
        """Return True if enough epochs of ``trial`` with ``at_work`` trials at work are known."""
        mean = self.trials.get(trial, {}).get(at_work)
        return mean is not None and mean.n >= MIN_BASELINE

    def verdict(self, slots: int) -> Verdict:
        """Return the number of trials that a device with ``slots`` slots may hold, and why."""
        if self.short:
            return Verdict(slots)
        verdict = Verdict(1)
        for k in range(2, slots + 1):
            step = self.steps.get(k, SharingStep(0.0, 0.0))
            if step.weight < MIN_WEIGHT:
                return verdict._replace(slots=k, exploring=True)
            gain = math.log(k / (k - 1)) - step.sum / step.weight
            error = math.sqrt(self._variance / step.weight)
            verdict = Verdict(k, judged=k, gain=math.exp(gain), error=error)
            if gain - SIGNIFICANCE * error > math.log1p(MIN_GAIN):
                continue
            rejected = gain + SIGNIFICANCE * error <= math.log1p(MIN_GAIN)
            exploring = not rejected and self.shared.get(k, 0) < MAX_SHARED_EPOCHS
            return verdict._replace(slots=k if exploring else k - 1, exploring=exploring)
        return verdict

    def slowdown(self, at_work: int) -> float:
        """Return the seconds of an epoch among ``at_work`` trials divided by the seconds alone.

        Steps that were not measured count as no slowdown.
        """
        steps = (self.steps.get(k) for k in range(2, at_work + 1))
        return math.exp(sum(step.sum / step.weight for step in steps if step and step.weight > 0))

    @property
    def _variance(self) -> float:
        prior_squares = PRIOR_EPOCHS * PRIOR_DEVIATION**2
        return (prior_squares + self.squares) / (PRIOR_EPOCHS + self.degrees)

    def _count(self, known: dict[int, Mean], at_work: int, sign: int) -> None:
        """Add a trial to (``sign`` +1) or remove it from (-1) the steps to and from ``at_work``."""
        for k in (at_work, at_work + 1):
            one_less, at_count = known.get(k - 1), known.get(k)
            if one_less is None or at_count is None:
                continue
            weight = sign * one_less.n * at_count.n / (one_less.n + at_count.n)
            step = self.steps.get(k, SharingStep(0.0, 0.0))
            self.steps[k] = SharingStep(
                step.weight + weight, step.sum + weight * (at_count.mean - one_less.mean)
            )

    def _reset_measurements(self) -> None:
        self.trials.clear()
        self.steps.clear()
        self.shared.clear()
        self.drift = 0.0


@dataclass(slots=True)
class SharingTable:
    """Interference by study and by kind of device."""

    studies: dict[str, dict[str, Interference]] = field(default_factory=dict)

    def of(self, study: str, kind: str) -> Interference:
        """Return the measurements of a study on a kind of device; empty at first."""
        return self.studies.setdefault(study, {}).setdefault(kind, Interference())

    def forget_study(self, study: str) -> None:
        """Drop the measurements of a finished study."""
        self.studies.pop(study, None)
