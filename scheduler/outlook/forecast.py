"""Forecast of a study's end, and of the time by which it misses its deadline.

Theory of operation. The remaining work of a study is the epochs up to its trials' targets, those of
trials that will still be proposed, and those that its strategy is expected to promote. If targets
are only ends of intervals, trials are assumed to go on to the last epoch. Under a stopping rule,
the share of trials that go on after each comparison is taken to be the share so far (the
product-limit estimate of Kaplan and Meier, 1958). Trials that ASHA has promoted early, beyond its
rule, count with the promotions that follow from them.

An epoch takes the time that the cost table expects on one device. Chains of epochs are placed on
the study's slots, starting with the running trials (list scheduling). Epochs that may still be
promoted are assumed to fill the slots evenly. A study with rungs also lasts until one trial has
reached the highest rung that any trial will reach. Widening, losses and future studies are left
out. So the result is a forecast and no bound.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Protocol

from ..model.study import ENDLESS, deadline_of
from ..model.trial import Trial, TrialState
from ..resources.slots import capacity
from ..state.epoch_times import epoch_ends
from ..state.extensions import Extensions
from ..state.state import EngineState, StudyState
from ..strategies.base import RULES, UNBOUNDED, comparison_epochs, rungs_of
from ..strategies.expected import expected_epochs, least_promoted

#: Number of ended trials that are enough to estimate the length of trials that may end early.
ENOUGH = 3


class Engine(Protocol):
    """The part of an engine's interface that a forecast uses."""

    @property
    def state(self) -> EngineState: ...

    @property
    def extensions(self) -> Extensions: ...


def misses_by(engine: Engine, study: StudyState, at: float) -> float | None:
    """Return the seconds by which the study is expected to miss its deadline; 0 if it meets it.

    The result is None if the study has no deadline, or nothing is known yet.
    """
    if study.spec.deadline is None:  # few have one, and the end takes a while to work out
        return None
    return late_by(study, study_end(engine, study, at))


def late_by(study: StudyState, ends: float | None) -> float | None:
    """Return the seconds by which a study misses its deadline if it is over at ``ends``.

    The result is 0 if it meets the deadline, and None without a deadline or without ``ends`` (the
    runner's clock).
    """
    deadline = deadline_of(study.spec, study.created_at)
    return None if deadline is None or ends is None else max(0.0, ends - deadline)


def study_end(engine: Engine, study: StudyState, at: float) -> float | None:
    """Return when the study is expected to be over, given its state at ``at`` (the runner's clock).

    The result is None if its end is open, no epoch of it was measured, or no device may work for
    it.
    """
    spec, state = study.spec, engine.state
    slots = _slots(engine, study)
    trials = [state.trials[name] for name in study.trials]
    seconds = _epoch_seconds(state, trials)
    if not study.runnable or not slots or seconds is None or spec.n_trials >= ENDLESS:
        return None
    whole = _epochs_of_one(study, trials)
    if whole is None:
        return None
    goes_on = _shares_that_go_on(study, trials)
    on_their_way = [trial for trial in trials if not _rests(study, trial)]
    on_their_way.sort(key=lambda trial: not trial.fence)  # what runs goes on where it is
    chains = [
        _left(engine, trial, seconds, _last_epoch(study, trial, whole, goes_on), at)
        for trial in on_their_way
    ]
    unproposed = max(0, spec.n_trials - sum(trial.origin is None for trial in trials))
    even = longest = 0.0
    if rungs_of(spec.strategy):
        trained = sum(trial.epoch - trial.begin for trial in trials)
        epochs_ahead = sum(trial.target - trial.epoch for trial in on_their_way)
        even = max(0.0, _epochs_of_rungs(study, trials) - trained - epochs_ahead) * seconds
        longest = _to_the_last_rung(study, trials) * seconds
    else:
        chains += [_expected_last(0, whole, goes_on) * seconds] * unproposed
    return at + max(_makespan(chains, slots), (sum(chains) + even) / slots, longest)


def _slots(engine: Engine, study: StudyState) -> int:
    """Return the number of the study's trials that can be trained at the same time.

    The result is 0 if no device may train trials of the study.
    """
    state = engine.state
    names = (name for name in state.devices if state.usable(name) and name not in study.refused)
    slots = sum(capacity(state, engine.extensions, name) for name in names)
    competing = sum(each.runnable and each.active > 0 for each in state.studies.values())
    if study.share is not None:
        slots = min(slots, max(1, round(study.share)))
    elif competing > 1:
        slots = max(1, slots // competing) if slots else 0
    return slots


def _epoch_seconds(state: EngineState, trials: Iterable[Trial]) -> float | None:
    """Return the mean seconds of an epoch of the study's trials; None if nothing was measured."""
    seconds = [each for trial in trials if (each := _seconds(state, trial)) is not None]
    return sum(seconds) / len(seconds) if seconds else None


def _seconds(state: EngineState, trial: Trial) -> float | None:
    """Return the mean seconds of the trial's epoch; None if nothing was measured.

    The cost table has the mean and deviation of the logarithm of the seconds.
    """
    expected = state.costs.expected(trial.study, trial.id, 1, state.features(trial))
    return None if expected.level is None else expected.level * math.exp(expected.deviation**2 / 2)


def _epochs_of_one(study: StudyState, trials: Iterable[Trial]) -> int | None:
    """Return the number of epochs of a trial that is not stopped early.

    The result is None if only the objective decides when a trial ends, and fewer than ``ENOUGH``
    trials have ended.
    """
    plan = study.spec.strategy
    lengths = [trial.epoch for trial in trials if trial.state in _ENDED and trial.epoch]
    if plan.max_epochs is None and len(lengths) >= ENOUGH:
        return math.ceil(sum(lengths) / len(lengths))
    return plan.max_epochs


def _shares_that_go_on(study: StudyState, trials: Sequence[Trial]) -> dict[int, float]:
    """Return the share of trials that went on after each comparison by a stopping rule.

    The share is 1 if no trial has reached the comparison's epoch.
    """
    plan = study.spec.strategy
    shares = dict[int, float]()
    for look in comparison_epochs(plan)[:-1] if plan.name in RULES else ():
        stopped = sum(trial.epoch == look and trial.state in _ENDED for trial in trials)
        at_look = sum(trial.epoch >= look for trial in trials)
        shares[look] = 1.0 - stopped / at_look if at_look else 1.0
    return shares


def _expected_last(epoch: int, whole: int, goes_on: Mapping[int, float]) -> float:
    """Return the expected last epoch of a trial that is now at ``epoch``.

    The trial is trained at least until it is next compared with other trials.
    """
    looks = [*(look for look in goes_on if look > epoch), whole]
    expected, share = float(looks[0]), 1.0
    for look, after in pairwise(looks):
        share *= goes_on[look]
        expected += share * (after - look)
    return expected


_ENDED = (TrialState.COMPLETED, TrialState.STOPPED, TrialState.PAUSED)


def _rests(study: StudyState, trial: Trial) -> bool:
    """Return True if the trial is not on its way to a target.

    Paused members of a population are on their way: they wait for each other.
    """
    if trial.state is TrialState.PAUSED and study.spec.strategy.name == "pbt":
        return False
    return trial.state not in (TrialState.WAITING, TrialState.RUNNING)


def _last_epoch(study: StudyState, trial: Trial, whole: int, goes_on: Mapping[int, float]) -> float:
    """Return the epoch up to which the trial is expected to go on, if no rung stops it."""
    plan = study.spec.strategy
    if trial.target >= UNBOUNDED:
        return max(whole, trial.epoch + 1)
    if plan.name == "pbt" or plan.name in RULES:
        return _expected_last(trial.epoch, whole, goes_on)
    return trial.target


def _left(engine: Engine, trial: Trial, mean: float, target: float, at: float) -> float:
    """Return the expected seconds until the trial has reached the epoch ``target``."""
    seconds = _seconds(engine.state, trial) or mean
    attempt = engine.state.attempts.get(trial.fence)
    ends = None if attempt is None else epoch_ends(engine.state, engine.extensions, attempt)
    if ends is None:
        return (target - trial.epoch) * seconds
    return max(0.0, ends - at) + (target - trial.epoch - 1) * seconds


def _epochs_of_rungs(study: StudyState, trials: Sequence[Trial]) -> float:
    """Return the number of epochs that a study with rungs takes, given its promotions so far."""
    plan, size = study.spec.strategy, float(study.spec.n_trials)
    if plan.name != "asha":
        return float(expected_epochs(plan, study.spec.n_trials) or 0)
    epochs, below = 0.0, 0
    for level in rungs_of(plan):
        epochs += size * (level - below)
        at_rung = sum(trial.epoch >= level for trial in trials)
        promoted = sum(trial.epoch >= level and trial.target > level for trial in trials)
        of_those = max(promoted, at_rung // plan.eta)
        size, below = math.floor(of_those + max(0.0, size - at_rung) / plan.eta), level
    return epochs


def _to_the_last_rung(study: StudyState, trials: Iterable[Trial]) -> int:
    """Return the number of epochs that the leading trial still needs to reach the last rung.

    The last rung is the highest rung that the number of trials lets any trial reach.
    """
    plan, size, last = study.spec.strategy, study.spec.n_trials, 0
    for level in rungs_of(plan):
        if size:
            last = level
        size = max(least_promoted(plan), size // plan.eta)
    return max(0, last - max((trial.epoch for trial in trials), default=0))


def _makespan(chains: Iterable[float], slots: int) -> float:
    """Return the time at which ``slots`` slots have finished the chains, placed in this order."""
    free = [0.0] * slots
    for chain in chains:
        heapq.heapreplace(free, free[0] + chain)
    return max(free)
