"""What trials that share a device do to each other's epochs, as measured.

Theory of operation. The trials of a study differ by more than sharing costs, so epochs of a trial
are compared with epochs of the same trial. With x the logarithm of an epoch's seconds, a trial that
had m epochs as one of k - 1 trials on its device and n epochs as one of k tells that the step from
k - 1 to k costs mean(x_k) - mean(x_k-1), with variance s² (1/m + 1/n); s² is what epochs of one
trial scatter under equal conditions. The trials' steps are averaged with weights mn / (m + n).

k trials do k / seconds(k) epochs a second in all, so k gains over k - 1 by log(k / (k - 1)) less
the step. A number is *tried* until its gain is known; it is kept where that is beyond its noise
above ``WORTH``, and else not used. Where epochs come to take another time than the same trial's
before, under equal conditions, everything is measured anew.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

from .table import ALPHA, LEAST, MOVED

#: By what part the total speed must grow for one more trial on a device.
WORTH = 0.03
#: So many epochs of a trial are to be known before another one joins it.
BASELINE = 2
#: Weight of a step (two epochs before it and two after) from which on it is judged.
ENOUGH = 1.0
#: Shared epochs after which a gain that is still within its noise is none.
TRIES = 24
#: Deviations that a gain must be beyond.
SURE = 2.0
#: An epoch counts as at most this far from its trial's mean (logarithm): four in a row that are
#: beyond it move ``drift`` by ``MOVED``, one does not.
OUTLIER = 1.5 * math.log(MOVED)
#: Epochs shorter than this (seconds) are nothing but their overhead, and every slot is used.
SHORT = 0.001
#: Epochs of a trial that its means remember.
MEMORY = 20.0
#: What epochs of a trial are taken to scatter by (deviation of the logarithm) before anything is
#: known of it, and the number of epochs that this counts for.
SCATTER, SCATTER_COUNTS = 0.05, 2.0


class Mean(NamedTuple):
    """Of the logarithms of ``n`` epochs' seconds."""

    n: float
    mean: float


class Step(NamedTuple):
    """Sum of the weights of trials, and of weight times change of the logarithm of seconds."""

    weight: float
    sum: float


class Verdict(NamedTuple):
    """So many trials of a study a device may hold; ``trying``: the last of them to find out.

    ``gain`` is the total speed of the number that was judged last over one less, ``error`` its
    relative deviation; None where nothing was judged.
    """

    slots: int
    trying: bool = False
    judged: int = 1
    gain: float | None = None
    error: float = 0.0


@dataclass(slots=True)
class Interference:
    """Of one study on one kind of device: means by trial and number at work, and steps by number.

    ``shared`` counts epochs by number. ``squares`` and ``degrees`` give what epochs scatter by,
    ``drift`` is how the newest ones differ from their trial's mean. ``memory``: the most that a
    trainer of it was seen to use (bytes), 0 while nothing is known. ``short``: its newest epoch was
    shorter than ``SHORT``.
    """

    trials: dict[str, dict[int, Mean]] = field(default_factory=dict)
    steps: dict[int, Step] = field(default_factory=dict)
    shared: dict[int, int] = field(default_factory=dict)
    squares: float = 0.0
    degrees: float = 0.0
    drift: float = 0.0
    memory: int = 0
    short: bool = False

    def saw(self, trial: str, at_work: int, seconds: float) -> None:
        """Take in an epoch during all of which ``at_work`` trials were on the device."""
        value = math.log(max(LEAST, seconds))
        self.short = seconds < SHORT
        known = self.trials.setdefault(trial, {})
        before = known.get(at_work, Mean(0.0, value))
        off = max(-OUTLIER, min(OUTLIER, value - before.mean))
        if before.n:
            self.squares += off * off * before.n / (before.n + 1.0)
            self.degrees += 1.0
            self.drift += ALPHA * (off - self.drift)
            if abs(self.drift) > math.log(MOVED):
                self._measure_anew()
                known, before, off = self.trials.setdefault(trial, {}), Mean(0.0, value), 0.0
        self._count(known, at_work, -1)
        n = min(before.n + 1.0, MEMORY)
        known[at_work] = Mean(n, before.mean + off / n)
        self._count(known, at_work, +1)
        self.shared[at_work] = self.shared.get(at_work, 0) + 1

    def has_baseline(self, trial: str, at_work: int) -> bool:
        """Whether enough epochs of ``trial`` as one of ``at_work`` are known to compare with."""
        known = self.trials.get(trial, {}).get(at_work)
        return known is not None and known.n >= BASELINE

    def verdict(self, most: int) -> Verdict:
        """How many trials a device with ``most`` slots may hold."""
        if self.short:
            return Verdict(most)
        found = Verdict(1)
        for k in range(2, most + 1):
            step = self.steps.get(k, Step(0.0, 0.0))
            if step.weight < ENOUGH:
                return found._replace(slots=k, trying=True)
            gain = math.log(k / (k - 1)) - step.sum / step.weight
            error = math.sqrt(self._variance / step.weight)
            found = Verdict(k, judged=k, gain=math.exp(gain), error=error)
            if gain - SURE * error > math.log1p(WORTH):
                continue
            hurts = gain + SURE * error <= math.log1p(WORTH)
            trying = not hurts and self.shared.get(k, 0) < TRIES
            return found._replace(slots=k if trying else k - 1, trying=trying)
        return found

    def stretch(self, at_work: int) -> float:
        """How many times as long an epoch takes as alone; 1 for what is not known."""
        steps = (self.steps.get(k) for k in range(2, at_work + 1))
        return math.exp(sum(step.sum / step.weight for step in steps if step and step.weight > 0))

    @property
    def _variance(self) -> float:
        prior = SCATTER_COUNTS * SCATTER**2
        return (prior + self.squares) / (SCATTER_COUNTS + self.degrees)

    def _count(self, known: dict[int, Mean], at_work: int, sign: int) -> None:
        """Add a trial to (+1) or take it from (-1) the steps that ``at_work`` is a side of."""
        for k in (at_work, at_work + 1):
            fewer, more = known.get(k - 1), known.get(k)
            if fewer is None or more is None:
                continue
            weight = sign * fewer.n * more.n / (fewer.n + more.n)
            step = self.steps.get(k, Step(0.0, 0.0))
            self.steps[k] = Step(step.weight + weight, step.sum + weight * (more.mean - fewer.mean))

    def _measure_anew(self) -> None:
        self.trials.clear()
        self.steps.clear()
        self.shared.clear()
        self.drift = 0.0


@dataclass(slots=True)
class SharingTable:
    """Interference by study and by kind of device."""

    studies: dict[str, dict[str, Interference]] = field(default_factory=dict)

    def of(self, study: str, kind: str) -> Interference:
        """What is known; nothing at first."""
        return self.studies.setdefault(study, {}).setdefault(kind, Interference())

    def forget_study(self, study: str) -> None:
        """Drop what is known of a finished study."""
        self.studies.pop(study, None)
