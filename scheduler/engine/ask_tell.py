"""Ask and tell: studies whose trials users train themselves, on devices outside the pool.

Theory of operation. A study with the contract ``ask`` has no strategy to pull and needs no slot. It
ends when the user closes it. Its trials are added and written as Optuna does (``user_trials``).

No command asks for a trial or tells its result any more. ``TrialAsked`` and ``TrialTold`` are in
ledgers of older versions only, whose events are handled again at every start. In those versions,
the sampler proposed one trial, which counted as running until the user told its result.
"""

from __future__ import annotations

from ..model.events import StudyClosed, TrialAsked, TrialTold
from ..model.trial import TOLD, Failure, Step, TrialState
from ..state.core import Core, Refused
from ..state.state import StudyState
from .attempts import Attempts
from .checkpoints import Checkpoints
from .proposals import Proposals


class AskTell:
    """Closes studies that users train, and handles the asks and tells of older ledgers."""

    def __init__(
        self,
        core: Core,
        *,
        checkpoints: Checkpoints,
        proposals: Proposals,
        attempts: Attempts,
    ) -> None:
        self._core = core
        self._state = core.state
        self._checkpoints = checkpoints
        self._proposals = proposals
        self._attempts = attempts

    def on_trial_asked(self, event: TrialAsked) -> None:
        study = self._asked_study(event.study)
        if event.number != len(study.trials):
            raise Refused(f"trial {event.number} of {event.study} is asked for already")
        self._proposals.ask(study, 1)

    def on_trial_told(self, event: TrialTold) -> None:
        trial = self._core.trial(event.trial)
        study = self._asked_study(trial.study)
        if trial.state is not TrialState.RUNNING:
            raise Refused(f"{trial.id} is {trial.state} already")
        if event.value is None:
            trial.failure = Failure(TOLD, event.reason)
            self._core.move(study, trial, Step.FAIL)
        else:
            trial.value = event.value
            self._core.move(study, trial, Step.FINISH)
        self._checkpoints.trial_over(study, trial)

    def on_study_closed(self, event: StudyClosed) -> None:
        study = self._asked_study(event.study)
        self._attempts.abandon(study, "complete" if study.succeeded else "cancelled")

    def _asked_study(self, name: str) -> StudyState:
        study = self._core.study(name)
        if study.spec.contract != "ask":
            raise Refused(f"the trials of {name} are trained on devices")
        return study
