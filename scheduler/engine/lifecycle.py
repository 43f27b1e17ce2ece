"""A study's life: it is submitted, paused, resumed, extended, cancelled or imported.

Theory of operation. A paused study gets no slots, and its strategy is not pulled. Its running
trials are cut at the end of their epoch and wait in the queue like any other, so nothing is lost,
and a resume only fills slots again.

The way a study is extended to more trials depends on its strategy. Strategies that take trials one
by one (``EXTENSIBLE``) continue with all that they know: old and new trials compete. The other
strategies fix the sizes of their rungs by the number of trials before they start, and their
decisions cannot be undone. Under such a strategy the additional trials are a run of their own,
after every earlier decision.

A study that was over is no longer in the state, so the event brings its trials back. A strategy
that can grow is made again and told which results the trials reached, in the order of their
numbers. A trial that was stopped at its rung becomes paused again, and may be promoted, if its last
state is still durable. Otherwise it stays stopped and only its scores count. Failed, cancelled and
completed trials stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from typing import cast

from ...profiling.devices.signature import machine_of, refined
from ..model.early_failure import is_in_part
from ..model.events import (
    CallbacksCalled,
    StudyCancelled,
    StudyExtended,
    StudyFailed,
    StudyImported,
    StudyPaused,
    StudyReopened,
    StudyResumed,
    StudyStopped,
    StudySubmitted,
    StudyWeighed,
    Unread,
)
from ..model.finished import FinishedStudy, PastTrial
from ..model.study import DELETED, OVER, StudySpec
from ..model.trial import FINAL, Step, Trial, TrialState
from ..policies.retention import best_completed
from ..resources.unable import exclude_unable, try_again
from ..state.core import Core, Refused
from ..state.state import StudyState
from ..strategies.asha import Asha
from ..strategies.base import UNBOUNDED, Strategy, comparison_epochs, pauses_of
from ..strategies.freeze_thaw import FreezeThaw
from ..strategies.full import FullBudget
from ..strategies.stopping import Stopping
from .attempts import Attempts
from .proposals import ORDER_FREE, Proposals

#: The message of a study that waited for callbacks of a script when the script ended.
UNHEARD = "its script has gone: its callbacks are called no more"
#: Strategies to which trials can be added at any time.
EXTENSIBLE = (FullBudget, Asha, FreezeThaw, Stopping)


class Lifecycle:
    """Starts, interrupts, extends and ends studies."""

    def __init__(self, core: Core, *, proposals: Proposals, attempts: Attempts) -> None:
        self._core = core
        self._state = core.state
        self._proposals = proposals
        self._attempts = attempts

    def on_study_paused(self, event: StudyPaused) -> None:
        study = self._core.study(event.study)
        if event.lacks:
            study.lacks |= dict.fromkeys(event.lacks, event.why)
            self._core.extensions.study_begins(study)
            self._core.halt(study)
        elif study.status == "paused":
            raise Refused(f"{event.study} is paused already")
        else:
            self._core.pause(study)
        self._core.offer_slots()

    def on_study_resumed(self, event: StudyResumed) -> None:
        study = self._core.study(event.study)
        if event.found:
            for name in event.found:
                study.lacks.pop(name, None)
            self._core.extensions.study_begins(study)
        elif study.status != "paused":
            raise Refused(f"{event.study} is not paused")
        else:
            self._resume(study)
        try_again(self._core, study)
        self._changed(study)

    def _resume(self, study: StudyState) -> None:
        study.status = "running"
        if is_in_part(study.message):
            # That those failed is known to its user: from now on others count.
            study.extended_at, study.message = self._core.at, ""

    def _exclude_unable(self, study: StudyState) -> None:
        devices = [each.device for each in self._state.devices.values()]
        exclude_unable(self._core, study, devices)

    def on_unread(self, event: Unread) -> None:
        """Note that a study needs an extension that is not loaded."""
        study = self._state.studies.get(event.study or "")
        if study is not None and event.extension not in study.needs:
            study.needs.append(event.extension)

    def on_study_weighed(self, event: StudyWeighed) -> None:
        study = self._core.study(event.study)
        study.spec = replace(study.spec, weight=event.weight, priority=event.priority)
        self._changed(study)

    def on_study_extended(self, event: StudyExtended) -> None:
        spec, study = event.study, self._state.studies.get(event.study.id)
        if (study is None) != (event.past is not None):
            raise Refused(f"{spec.id} is over, or is not, by now")
        if event.past is not None:
            n_trials = sum(not trial.branched for trial in event.past.trials)
            if not spec.local and spec.n_trials <= n_trials:
                raise Refused(f"{spec.id} has {n_trials} trials already")
            study = self._reopen(spec, event.past)
            study.enqueued = list(event.enqueued)
            self._core.extensions.tell(study, "on_begun", event)
        else:
            assert study is not None
            if spec.n_trials <= study.spec.n_trials:
                raise Refused(f"{spec.id} has {study.spec.n_trials} trials already")
            if spec.local and spec.code != study.spec.code and study.at_work:
                raise Refused(f"{spec.id} runs trials of another objective")
            if isinstance(study.strategy, EXTENSIBLE):
                study.strategy.n_trials = spec.n_trials
            else:
                study.held_back += spec.n_trials - study.spec.n_trials
            study.spec = spec
            self._core.extensions.study_begins(study)
            study.finishes = None
            if study.status == "paused" and is_in_part(study.message):
                self._resume(study)  # its user has acted, and may have mended the code
        study.extended_at = event.at
        self._proposals.settle(study)
        self._changed(study)

    def _changed(self, study: StudyState) -> None:
        self._core.touch_study(study)
        self._core.invalidate_plan()
        self._core.offer_slots()

    def on_study_reopened(self, event: StudyReopened) -> None:
        study = self._reopen(event.study, event.past, goes_on=event.study.local)
        self._core.extensions.tell(study, "on_begun", event)
        study.status, study.finished_at = event.status, event.finished_at
        study.message = event.message
        if event.status not in OVER:
            self._changed(study)

    def on_callbacks_called(self, event: CallbacksCalled) -> None:
        """Note for which trials a script has called its callbacks, and let further trials start.

        If no strategy compares the trials, each ended trial holds one slot back until its callbacks
        were called, so that a callback can stop the study in time. A strategy that compares trials
        pauses them, and callbacks are called after its last decision. A callback cannot stop such a
        study, only cancel it, so its trials do not wait for callbacks.
        """
        study = self._core.study(event.study)
        if not isinstance(study.strategy, FullBudget):
            raise Refused(f"{event.study} does not wait for callbacks")
        if event.over and not study.heard:
            raise Refused(f"{event.study} has no callbacks")
        unheard = [name for name in study.unheard or () if name not in event.trials]
        study.unheard = None if event.over else unheard
        if event.over and not study.message:
            study.message = UNHEARD
            self._core.touch_study(study)
        elif study.heard and study.message == UNHEARD:
            study.message = ""
            self._core.touch_study(study)
        self._proposals.settle(study)
        self._core.offer_slots()

    def on_study_stopped(self, event: StudyStopped) -> None:
        study = self._core.study(event.study)
        if study.status in OVER:  # what it was reopened for was refused
            self._proposals.settle(study)
            return
        strategy = study.strategy
        if not isinstance(strategy, FullBudget):
            raise Refused(f"{event.study} can be cancelled, its strategy cannot be stopped")
        strategy.n_trials = strategy.asked
        study.spec = replace(study.spec, n_trials=strategy.asked)
        for trial in self._core.trials_of(study):
            # Samplers that need no results have proposed all trials already.
            if trial.state is TrialState.WAITING and not trial.begun and not trial.branched:
                self._core.move(study, trial, Step.CANCEL)
        self._core.touch_study(study)
        self._proposals.settle(study)

    def _reopen(self, spec: StudySpec, past: FinishedStudy, *, goes_on: bool = True) -> StudyState:
        """Put a study that was over back into the state.

        If ``goes_on`` is False, the study was reopened because the user acts on single trials. Its
        strategy then makes no further decisions.
        """
        if self._state.finished.get(spec.id, DELETED) == DELETED:
            raise Refused(f"there is no study {spec.id}")
        strategy = self._core.strategies(spec)
        n_trials = sum(not trial.branched for trial in past.trials)
        if not goes_on:
            trials = [_reopened(trial, ()) for trial in past.trials]
            last = spec.strategy.max_epochs or UNBOUNDED
            strategy = FullBudget(n_trials, last, asked=n_trials)
        elif isinstance(strategy, EXTENSIBLE):
            trials = [_reopened(trial, pauses_of(spec.strategy)) for trial in past.trials]
            _replay(strategy, spec, [trial for trial in trials if not trial.branched])
        else:
            trials = [_reopened(trial, ()) for trial in past.trials]
            strategy = self._core.strategies(replace(spec, n_trials=spec.n_trials - n_trials))
        study = StudyState(spec, strategy, created_at=past.created_at)
        study.trials = [trial.id for trial in trials]
        if spec.local:
            study.waiting = [t.id for t in trials if t.state is TrialState.PROPOSED]
            study.handed_out = [t.id for t in trials if t.state is TrialState.RUNNING]
            study.active = len(study.waiting) + len(study.handed_out)
            cast(FullBudget, strategy).asked = len(trials) - len(study.waiting)
        # It seeds the sampler, so it must be new: there was at most one ask for each trial.
        study.next_ask = len(trials)
        study.succeeded = sum(_has_succeeded(spec, trial) for trial in trials)
        study.signature = reduce(refined, (machine_of(trial.signature) for trial in trials), "")
        study.best = best_completed(trials, spec)
        study.spent = past.spent
        study.needs = self._core.extensions.needed_with(trials)
        self._core.extensions.study_begins(study)
        self._exclude_unable(study)
        self._state.studies[spec.id] = study
        for trial in trials:
            self._state.trials[trial.id] = self._core.changes.trials[trial.id] = trial
        del self._state.finished[spec.id]
        self._state.ended.pop(spec.id, None)
        return study

    def on_study_submitted(self, event: StudySubmitted) -> None:
        spec = event.study
        if spec.id in self._state.studies or spec.id in self._state.finished:
            raise Refused(f"study {spec.id} was submitted already")
        study = StudyState(spec, self._core.strategies(spec), created_at=event.at)
        study.enqueued = list(event.enqueued)
        self._core.extensions.study_begins(study)
        self._exclude_unable(study)
        self._state.studies[spec.id] = study
        self._core.extensions.tell(study, "on_begun", event)
        self._core.touch_study(study)
        if spec.sampler in ORDER_FREE and spec.contract != "ask":
            self._proposals.pull_study(
                study, 0
            )  # plan with all that is known, whichever study is first
        self._core.offer_slots()

    def on_study_cancelled(self, event: StudyCancelled) -> None:
        self._attempts.abandon(self._core.study(event.study), "cancelled")

    def on_study_failed(self, event: StudyFailed) -> None:
        study = self._core.study(event.study)
        study.message = event.reason
        self._attempts.abandon(study, "failed")

    def on_study_imported(self, event: StudyImported) -> None:
        spec = event.record.spec
        if spec.id in self._state.studies or spec.id in self._state.finished:
            raise Refused(f"there is a study {spec.id} already")
        self._state.finished[spec.id] = spec.name
        self._core.changes.studies[spec.id] = event.record
        for past in event.trials:
            trial = past.record(spec.id)
            self._core.changes.trials[trial.id] = trial
            for state, at in past.durables:
                self._core.changes.durables[trial.id, state.epoch] = (state, at)
        # Readers take the order of epochs as the order of acceptance.
        epochs = [epoch for past in event.trials for epoch in past.epochs]
        self._core.changes.epochs += sorted(epochs, key=lambda epoch: epoch.at)


_SUCCEEDED = (TrialState.COMPLETED, TrialState.STOPPED, TrialState.PAUSED)


def _has_succeeded(spec: StudySpec, trial: Trial) -> bool:
    """Return True if the trial has a result.

    In a ``local`` study the result may be a value without any epoch, which the user added or
    returned. In other studies only epochs count, as they did in the ledgers that are replayed.
    """
    has_result = trial.epoch > 0 or (spec.local and trial.value is not None)
    return trial.state in _SUCCEEDED and has_result


def _reopened(past: PastTrial, rungs: Sequence[int]) -> Trial:
    """Return a record of the trial, in state PAUSED if the trial may still be promoted."""
    trial = past.record()
    newest = next(iter(trial.parents), None)
    durable = newest is not None and newest.state_hash == trial.state_hash
    if trial.state is TrialState.STOPPED and trial.epoch in rungs and durable:
        trial.state, trial.finished_at = TrialState.PAUSED, None
    return trial


def _replay(strategy: Strategy, spec: StudySpec, trials: Sequence[Trial]) -> None:
    """Tell a fresh strategy which epochs and scores these trials have reached.

    The strategy's answers are ignored, since the trials that it asks for have run already.
    """
    strategy.pull(len(trials), 0)
    strategy.proposed(tuple(trial.id for trial in trials), exhausted=False)
    epochs = comparison_epochs(spec.strategy)
    for trial in trials:
        curve = {epoch: spec.sign * value for epoch, value in sorted(trial.values.items())}
        for end in epochs:
            if end in curve:
                until = {epoch: score for epoch, score in curve.items() if epoch <= end}
                strategy.reached(trial.id, end, until)
    for trial in trials:
        if trial.state in FINAL:
            strategy.abandoned(trial.id)
