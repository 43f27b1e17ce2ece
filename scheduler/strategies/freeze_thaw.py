"""Freeze-thaw: after every epoch, a model of all learning curves chooses the next trial to train.

Theory of operation. ``curve_ensemble`` predicts the scores of every paused trial, and of a trial
that would begin now. An *index* makes both comparable: the expected gain over the best score so far
per second of device time. The index assumes that the trial is first trained for some epochs (the
*look*), after which the rest of its curve is known. Then training either stops or goes on for as
long as the gain is worth the time. Weitzman 1979, "Optimal Search for the Best Alternative", has
this rule for boxes that are opened at a cost; here a look opens a box. Gains are measured on a
logarithmic scale, as regret is. A free slot trains the trial with the highest index for one epoch,
or begins a new trial if a new trial has the highest index.

A running trial counts as if it had reached its expected score already. Otherwise several slots
might all chase the same expected gain.

The floor. One of every ``SHARE`` seconds of device time is spent as ASHA would spend it: on the
next step that ASHA would take with the same trials, given only the scores at its rungs. An epoch
that the model has already had trained costs the floor nothing. So if all epochs cost the same, on
one device, the n-th epoch that ASHA would train is among the first ``SHARE * n + 1`` epochs,
whatever the model chooses. If epochs differ in cost, the same holds for their seconds, except for
one epoch. On several devices the same holds except for the order in which results arrive. If no
model can be fitted, the strategy decides as ASHA does.

Scouts. The model learns from the curves that it has, and these are mostly of trials with good first
scores. If the best trials of a study begin badly, neither the model nor ASHA would ever train one
for long. So one of every ``SCOUTS`` seconds is spent on a *scout*: the trial that was proposed
first among those that were not trained for ``DEPTH`` of all epochs, whatever its scores are.
Scouts' curves are a fair sample.

The study is over when ASHA's rungs are finished, and the trial with the best expected end has been
trained to its last epoch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nlargest
from typing import Literal, NamedTuple

from ..model.trial_group import Entry, Pull, TrialGroup
from .asha import Asha
from .curve_ensemble import Forecast, Prior, forecasts, learned

#: One of this many seconds of device time is spent as ASHA would spend it (the floor).
SHARE = 3
#: One of this many seconds of device time is spent on scouts, and the part of all epochs for which
#: each of them is trained.
SCOUTS, DEPTH = 10, 1 / 3
#: The prior is learned again when the number of epochs has grown by this factor.
GROWTH = 1.1
#: The epochs of a new trial after which its further course is known.
LOOK = 1
#: The length of the look for a trial that has begun, as a part of its epochs so far.
PATIENCE = 0.5
#: The most paused trials that are compared for a free slot. A comparison takes some microseconds.
COMPARED = 256
#: A new trial is assumed to begin like one of the last ``NEWEST`` trials; ``SAMPLES`` of their
#: first scores stand for all of them.
NEWEST, SAMPLES = 32, 8
#: Points at which the standard normal distribution is evaluated, each with its weight.
NODES = tuple(
    (x, w)
    for x, w in zip(
        (-2.4, -1.6, -0.8, 0.0, 0.8, 1.6, 2.4),
        (0.0179, 0.0888, 0.2317, 0.3191, 0.2317, 0.0888, 0.0179),
        strict=True,
    )
)
#: The unit of gains, as a part of the difference between the best score and the mean first score.
#: A gain ``g`` over the best score counts as ``log(1 + g / unit)``.
UNIT = 0.03
#: An expected gain below this counts as 0.
NEGLIGIBLE = 1e-4
#: The score that replaces NaN and infinities at a rung.
WORST = -1e300


class Arm(NamedTuple):
    """A trial that may be trained next, with forecasts of its scores after ``epoch``.

    Each item of ``cases`` is a list of forecasts; all items are equally probable. The model assumes
    that after ``look`` more epochs the deviation of the trial from its forecasts is known.
    """

    cases: Sequence[Sequence[Forecast]]
    epoch: int
    look: int


@dataclass(slots=True)
class FreezeThaw:
    """The state machine of freeze-thaw."""

    #: The most trials that the study may have.
    n_trials: int
    #: The last epoch.
    max_epochs: int
    #: The floor, an ASHA over the same trials.
    asha: Asha
    #: The number of configurations that the sampler was asked for; and the number of these
    #: configurations that have not arrived yet.
    asked: int = 0
    pending: int = 0
    #: All trials, in the order in which they were proposed.
    trials: list[str] = field(default_factory=list)
    #: The number of trials, from the start of ``trials``, that the floor includes.
    entered: int = 0
    #: The epoch of the next rung, for each trial that the floor wants trained.
    wanted: dict[str, int] = field(default_factory=dict)
    #: The scores of each trial from epoch 1 on.
    curves: dict[str, list[float]] = field(default_factory=dict)
    #: The running trials, each with its target.
    running: dict[str, int] = field(default_factory=dict)
    #: The trials that were abandoned (that were stopped or have failed).
    out: list[str] = field(default_factory=list)
    #: The expected seconds of an epoch of each trial, where known; and the sum of these seconds.
    seconds: dict[str, float] = field(default_factory=dict)
    sum_of_seconds: float = 0.0
    #: The best score so far, or None before the first score.
    best: float | None = None
    #: The expected device time (seconds) of all epochs entered; and the part for the floor.
    spent: float = 0.0
    on_floor: float = 0.0
    #: The part of ``spent`` for scouts.
    on_scouts: float = 0.0
    #: The prior of the model, or None if no prior could be learned; the number of scores when the
    #: prior was last learned; and the number of scores now.
    prior: Prior | None = None
    learned_at: int = 0
    epochs: int = 0
    #: The forecasts of each trial; and forecasts of new trials, one list for each sampled first
    #: score (``SAMPLES``).
    expected: dict[str, list[Forecast]] = field(default_factory=dict)
    newcomers: list[list[Forecast]] = field(default_factory=list)
    #: The trial that is trained to the last epoch at the end, or an empty string before that.
    finalist: str = ""
    #: Distinguishes strategies in a snapshot.
    kind: Literal["freeze_thaw"] = "freeze_thaw"

    def cost(self, trial: str, seconds: float | None) -> None:
        """Note how long an epoch of the trial is expected to take.

        ``seconds`` is None if the time is not known; then the call has no effect.
        """
        if seconds is not None and math.isfinite(seconds):
            self.sum_of_seconds += seconds - self.seconds.get(trial, 0.0)
            self.seconds[trial] = seconds

    def pull(self, free: int, ahead: int, early: int | None = None) -> Pull:
        """Return work for each free slot: mostly one epoch of a trial, or a new configuration.

        At most ``early`` slots go to trials that have begun, since later results may show other
        trials to be better. There is no such limit if ``early`` is None.
        """
        group, ask = list[Entry](), 0
        while len(group) + ask < free:
            allowed = early is None or len(group) < early
            entry = self._next(may_go_on=allowed)
            if entry is None:
                break
            if entry.trial:
                group.append(entry)
            else:
                ask += 1
        return Pull(tuple(group), ask)

    def _next(self, *, may_go_on: bool) -> Entry | None:
        if not may_go_on:
            return self._begin(floor=False) if self.asked < self.n_trials else None
        floor_is_due = self.prior is None or self.on_floor * SHARE <= self.spent
        if floor_is_due:
            entry = self._as_floor()
        elif self.on_scouts * SCOUTS <= self.spent and (scout := self._as_scout()) is not None:
            return scout
        else:
            entry = self._as_expected()
        if entry is None:
            entry = self._as_expected() if floor_is_due else self._as_floor()
        return self._to_the_end() if entry is None else entry

    def _charge(self, trial: str, epochs: int, *, floor: bool) -> None:
        seconds = self._seconds(trial) * epochs
        self.spent += seconds
        if floor:
            self.on_floor += seconds

    def _seconds(self, trial: str) -> float:
        seconds = self.seconds.get(trial)
        if seconds is None:
            seconds = self.sum_of_seconds / len(self.seconds) if self.seconds else 1.0
        return max(1e-9, seconds)

    def _enter(self, trial: str, epochs: int, *, floor: bool) -> Entry:
        self._charge(trial, epochs - len(self.curves.get(trial, ())), floor=floor)
        self.running[trial] = epochs
        return Entry(trial, epochs)

    def _begin(self, *, floor: bool) -> Entry:
        """Count a new configuration as asked for, and return an entry with an empty trial name."""
        self._charge("", 1, floor=floor)
        self.asked += 1
        self.pending += 1
        return Entry("", 1)

    # -- the floor -------------------------------------------------------------------------------

    def _as_floor(self) -> Entry | None:
        """Return one epoch of the next trial that ASHA would train.

        The entry has an empty trial name if ASHA would begin a new trial. Return None if ASHA has
        nothing to train now.
        """
        while True:
            for trial in self.wanted:
                if trial not in self.running and trial in self.curves:
                    return self._enter(trial, len(self.curves[trial]) + 1, floor=True)
            n_known = len(self.trials) + self.pending
            self.asha.asked = self.entered
            self.asha.n_trials = max(n_known, self.n_trials if self.asked < self.n_trials else 0)
            pull = self.asha.pull(1, 0)
            for entry in pull.group:
                self._want(entry.trial, entry.epochs)
            if pull.ask:
                self.entered += 1
                if self.entered > n_known:
                    return self._begin(floor=True)
                if self.entered <= len(self.trials):
                    self._want(self.trials[self.entered - 1], self.asha.levels[0])
            elif not pull.group:
                return None

    def _want(self, trial: str, level: int) -> None:
        if trial in self.out:
            return
        self.wanted[trial] = level
        self._tell_floor(trial)

    def _tell_floor(self, trial: str) -> None:
        level, curve = self.wanted.get(trial), self.curves.get(trial, [])
        if level is not None and len(curve) >= level:
            del self.wanted[trial]
            score = curve[level - 1]
            self.asha.reached(trial, level, {level: score if math.isfinite(score) else WORST})

    # -- scouts ----------------------------------------------------------------------------------

    def _as_scout(self) -> Entry | None:
        """Return one epoch of the scout; None if the scout is running, or if there is none."""
        for trial in self.trials:
            epochs = len(self.curves[trial])
            if epochs >= DEPTH * self.max_epochs or trial in self.out:
                continue
            if trial in self.running:
                return None
            self.on_scouts += self._seconds(trial)
            return self._enter(trial, epochs + 1, floor=False)
        return None

    # -- the model -------------------------------------------------------------------------------

    def _as_expected(self) -> Entry | None:
        """Return one epoch of the trial with the highest index.

        The entry has an empty trial name if a new trial has the highest index. Return None if there
        is no model, or if no trial has an expected gain worth its time.
        """
        best = self.best
        if self.prior is None or best is None:
            return None
        hopes = [best]
        for trial, target in self.running.items():
            hopes += [each.mean for each in self.expected.get(trial, ()) if each.epoch <= target]
        best = max(hopes)
        unit = UNIT * (best - self.prior.first)
        if not unit > 0.0:
            return None
        highest, best_trial = NEGLIGIBLE / self._seconds(""), ""
        begin = False
        for trial in self._candidates():
            seconds, epoch = self._seconds(trial), len(self.curves[trial])
            arm = Arm([self.expected[trial]], epoch, max(1, int(PATIENCE * epoch)))
            rate = _index(arm, best, unit, highest * seconds)
            if rate > 0.0:
                highest, best_trial = rate / seconds, trial
        if self.asked < self.n_trials:
            arm = Arm(self.newcomers, 0, LOOK)
            begin = _index(arm, best, unit, highest * self._seconds("")) > 0.0
        if begin:
            return self._begin(floor=False)
        if not best_trial:
            return None
        return self._enter(best_trial, len(self.curves[best_trial]) + 1, floor=False)

    def _candidates(self) -> Sequence[str]:
        """Return the paused trials to compare: at most ``COMPARED``, those expected to end best."""

        def hope(trial: str) -> float:
            last = self.expected[trial][-1]
            return last.mean + last.deviation

        paused = [trial for trial in self.expected if trial not in self.running]
        return paused if len(paused) <= COMPARED else nlargest(COMPARED, paused, key=hope)

    def _to_the_end(self) -> Entry | None:
        """Return the remaining epochs of the trial with the best expected end as one entry.

        Return None if other work is left, or if that trial has reached the last epoch.
        """
        if self.running or self.pending or self.finalist:
            return None
        ends = {
            trial: self.expected[trial][-1].mean if self.expected.get(trial) else curve[-1]
            for trial, curve in self.curves.items()
            if curve
            and math.isfinite(curve[-1])
            and (trial not in self.out or len(curve) >= self.max_epochs)
        }
        if not ends:
            return None
        best = max(ends, key=ends.__getitem__)
        if len(self.curves[best]) >= self.max_epochs:
            return None
        self.finalist = best
        return self._enter(best, self.max_epochs, floor=False)

    # -- what happens ----------------------------------------------------------------------------

    def proposed(self, trials: tuple[str, ...], *, exhausted: bool) -> TrialGroup:
        """Train new configurations for one epoch."""
        self.pending = max(0, self.pending - len(trials))
        for trial in trials:
            self.trials.append(trial)
            self.curves[trial] = []
            self.running[trial] = 1
            if len(self.trials) <= self.entered:
                self._want(trial, self.asha.levels[0])
        if exhausted:
            self.pending, self.asked = 0, self.n_trials
            self.entered = min(self.entered, len(self.trials))
        return tuple(Entry(trial, 1) for trial in trials)

    def reached(self, trial: str, epoch: int, curve: Mapping[int, float]) -> TrialGroup:
        """Note the trial's scores, and update the forecasts of its later scores."""
        self.running.pop(trial, None)
        before = len(self.curves.get(trial, ()))
        last = min(epoch, self.max_epochs)
        self.curves[trial] = scores = [curve[each] for each in sorted(curve) if each <= last]
        self.epochs += len(scores) - before
        for score in scores[before:]:
            if math.isfinite(score) and (self.best is None or score > self.best):
                self.best = score
        self._tell_floor(trial)
        if self.epochs >= GROWTH * self.learned_at:
            self._learn()
        else:
            self._foretell([trial])
        return ()

    def abandoned(self, trial: str) -> TrialGroup:
        """Stop choosing the trial, both by the model and in the floor."""
        self.running.pop(trial, None)
        self.expected.pop(trial, None)
        if trial not in self.out:
            self.out.append(trial)
        self.wanted.pop(trial, None)
        self.asha.abandoned(trial)
        if trial == self.finalist:
            self.finalist = ""
        return ()

    def _learn(self) -> None:
        usable = {t: c for t, c in self.curves.items() if c and all(map(math.isfinite, c))}
        self.learned_at = self.epochs
        self.prior = learned(usable, self.max_epochs) if usable else None
        self.expected.clear()
        if self.prior is None:
            return
        self._foretell(usable)
        firsts = sorted([curve[0] for curve in usable.values()][-NEWEST:])
        step = max(1.0, len(firsts) / SAMPLES)
        picked = [firsts[int((n + 0.5) * step)] for n in range(min(SAMPLES, len(firsts)))]
        self.newcomers = [
            [Forecast(1, first, 0.0), *forecasts([first], self.prior, self.max_epochs)]
            for first in picked
        ]

    def _foretell(self, trials: Iterable[str]) -> None:
        for trial in trials:
            curve = self.curves[trial]
            self.expected.pop(trial, None)
            usable = trial not in self.out and len(curve) < self.max_epochs
            if self.prior is not None and usable and all(map(math.isfinite, curve)):
                coming = forecasts(curve, self.prior, self.max_epochs)
                if coming:
                    self.expected[trial] = coming


def _index(arm: Arm, best: float, unit: float, least: float) -> float:
    """Return the gain over ``best`` that is expected per epoch of a trial.

    Gains are logarithmic: a gain ``g`` counts as ``log(1 + g / unit)``. Return 0.0 if the trial
    does not gain more than ``least`` per epoch.
    """
    cases, epoch, look = arm
    if not cases:
        return 0.0
    look = min(look, cases[0][-1].epoch - epoch)
    rate = least
    for step in range(8):
        gains, epochs = _gains(cases, epoch + look, best, unit, rate)
        gain_rate = gains / (look + epochs)
        if step == 0 and gain_rate <= least:
            return 0.0
        if gain_rate <= rate * 1.01:
            break
        rate = gain_rate
    return gain_rate


def _gains(
    cases: Sequence[Sequence[Forecast]], known: int, best: float, unit: float, rate: float
) -> tuple[float, float]:
    """Return the expected gain of a trial, and the epochs after ``known`` that it takes.

    After epoch ``known``, at the end of the look, training goes on to where the gain minus ``rate``
    per epoch is largest.
    """
    gains = epochs = 0.0
    for case in cases:
        for x, weight in reversed(NODES):
            largest = gain_there = 0.0
            epochs_there, any_gain = 0, False
            for epoch, mean, deviation in case:
                relative = (mean + x * deviation - best) / unit
                if relative > 0.0:
                    any_gain = True
                    more = epoch - known if epoch > known else 0
                    # The logarithm of 1 + z is at most z: most need not be computed.
                    if relative > largest + rate * more:
                        gain = math.log1p(relative)
                        if gain - rate * more > largest:
                            largest, gain_there, epochs_there = gain - rate * more, gain, more
            if not any_gain:  # nor is there one at any lower ``x``
                break
            gains += weight * gain_there
            epochs += weight * epochs_there
    return gains / len(cases), epochs / len(cases)
