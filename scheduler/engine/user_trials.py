"""Trials that users add, train and describe by themselves, through Optuna's storage.

Theory of operation. If sampling happens in the objective's process (``StudySpec.local``), a study
behaves like one of Optuna's: its user may enqueue trials, ask for trials, add results, and write
attributes, in any order, before, while and after the engine runs other trials of the study. A trial
that waits (``StudyState.waiting``) is the next one that is run or asked for. A trial that its user
trains (``StudyState.handed_out``) has no slot and no fence. Neither keeps a study from being over:
the trial stays as it is, and is there again when the study is reopened. A study that was reopened
for a user's action is over again after it; trials that wait in it run when it is extended.

Writings are checked here, and then kept in the event only (``model.writing``). The draws of a trial
that is not over are kept in the state, too: the trial's next attempt gets them with its task, and
its reports count only under these draws. The user may change the draws of a trial before an attempt
has begun it.
"""

from __future__ import annotations

from dataclasses import replace

from ..model.events import StudyDeleted, StudyWritten, TrialAdded, TrialWritten
from ..model.study import DELETED, OVER, number_of
from ..model.trial import ADDED, FINAL, TOLD, Failure, Step, Trial
from ..model.writing import Suggestion
from ..state.core import Core, Refused
from ..state.state import StudyState
from .attempts import Attempts
from .proposals import Proposals

_ENDS = {"complete": Step.FINISH, "pruned": Step.PRUNE, "fail": Step.FAIL}


class UserTrials:
    """Handles the trials and the attributes that users write."""

    def __init__(self, core: Core, *, proposals: Proposals, attempts: Attempts) -> None:
        self._core = core
        self._state = core.state
        self._proposals = proposals
        self._attempts = attempts

    def on_trial_added(self, event: TrialAdded) -> None:
        study = self._local_study(event.trial.rpartition("-")[0])
        if event.call in study.calls:
            raise Refused(f"call {event.call} has added a trial already")
        if number_of(event.trial) != len(study.trials):
            raise Refused(f"there is a trial {event.trial} already")
        trial = self._proposals.make_trial(study)
        trial.enqueued = event.state == "waiting"
        if event.started is not None:
            trial.created_at = event.started
        self._suggest(study, trial, event.writing.suggestions)
        study.waiting.append(trial.id)
        if event.call:
            study.calls[event.call] = trial.id
        if event.state != "waiting":
            self._take(study, trial)
        if event.state in _ENDS:
            self._end(study, trial, event.state, event.values, ADDED)
            trial.finished_at = event.ended
        if study.status in OVER:
            self._proposals.settle(study)

    def on_trial_written(self, event: TrialWritten) -> None:
        trial = self._core.trial(event.trial)
        # Any objective may write attributes of its trial.
        study = self._core.study(trial.study) if event.fence else self._local_study(trial.study)
        if trial.state in FINAL:
            raise Refused(f"{trial.id} is {trial.state} already")
        if event.fence or event.state or not event.writing.only_attributes:
            self._core.check_fence(trial, event.fence)
        if event.state == "running" and trial.id not in study.waiting:
            raise Refused(f"{trial.id} is at work already")
        if event.state in _ENDS and trial.id not in study.handed_out:
            raise Refused(f"{trial.id} is not with its user")
        if event.draws_digest is not None and study.spec.local:
            self._core.check_draws(trial, event.draws_digest, event.writing.suggestions)
        if event.fence and event.number:
            self._core.check_writings(trial, event.number)
            self._state.attempts[trial.fence].writings = event.number
        self._suggest(study, trial, event.writing.suggestions)
        if event.state == "running":
            self._take(study, trial)
        elif event.state:
            self._end(study, trial, event.state, event.values, event.reason)
        self._proposals.settle(study)

    def on_study_written(self, event: StudyWritten) -> None:
        if event.study not in self._state.finished:
            self._core.study(event.study)

    def on_study_deleted(self, event: StudyDeleted) -> None:
        spec = event.record.spec
        if spec.id in self._state.studies:
            self._attempts.abandon(self._state.studies[spec.id], "cancelled")
        if self._state.finished.get(spec.id) != spec.name:
            raise Refused(f"there is no study {spec.id}")
        self._state.finished[spec.id] = DELETED  # its name is free again
        self._core.changes.studies[spec.id] = replace(event.record, status="deleted")

    def _local_study(self, name: str) -> StudyState:
        study = self._core.study(name)
        if not study.spec.local:
            raise Refused(f"trials of {name} are proposed by its own sampler")
        return study

    def _suggest(
        self, study: StudyState, trial: Trial, suggestions: tuple[Suggestion, ...]
    ) -> None:
        if suggestions:
            values = {each.name: each.value for each in suggestions}
            if study.spec.local:
                by_name = {each.name: each for each in (*trial.suggestions, *suggestions)}
                trial.suggestions = tuple(by_name.values())
            self._core.reparametrise(trial, tuple((dict(trial.params) | values).items()))
            self._core.changes.trials[trial.id] = trial

    def _take(self, study: StudyState, trial: Trial) -> None:
        """Hand a waiting trial to the user, who trains it. From now on it counts as begun."""
        study.waiting.remove(trial.id)
        study.handed_out.append(trial.id)
        self._core.move(study, trial, Step.HAND_OUT)
        study.count_trials(1)
        self._core.touch_study(study)

    def _end(
        self,
        study: StudyState,
        trial: Trial,
        state: str,
        values: tuple[float, ...],
        reason: str,
    ) -> None:
        study.handed_out.remove(trial.id)
        if values:
            trial.value, trial.further = values[0], values[1:]
        if state == "fail":
            trial.failure = Failure(TOLD, reason)
        self._core.move(study, trial, _ENDS[state])
