"""Ask and tell: trials that the user trains himself, on devices that are not ours.

Theory of operation. Such a study (contract ``ask``) has no strategy to pull and needs no slot. The
sampler proposes one trial when the user asks, which counts as running until he tells what it came
to. It has as many trials as were asked for, and ends when he closes it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from .events import StudyClosed, TrialAsked, TrialTold
from .extending import Extending
from .record import Refused
from .state import StudyState
from .trial import Failure, Step, TrialState


class Asking(Extending):
    """Hands trials out to the user, and takes in what he tells."""

    def _on_trial_asked(self, event: TrialAsked) -> None:
        study = self._asked_study(event.study)
        if event.number != len(study.trials):
            raise Refused(f"trial {event.number} of {event.study} is asked for already")
        self._ask(study, 1)

    def _hand_out(self, study: StudyState, names: Iterable[str]) -> None:
        for name in names:
            self._move(study, self.state.trials[name], Step.HAND_OUT)
        study.spec = replace(study.spec, n_trials=max(1, len(study.trials)))
        self._touch_study(study)

    def _on_trial_told(self, event: TrialTold) -> None:
        trial = self._trial(event.trial)
        study = self._asked_study(trial.study)
        if trial.state is not TrialState.RUNNING:
            raise Refused(f"{trial.id} is {trial.state} already")
        if event.value is None:
            trial.failure = Failure("told", event.reason)
            self._move(study, trial, Step.FAIL)
        else:
            trial.value = event.value
            self._move(study, trial, Step.FINISH)
        self._over(study, trial)

    def _on_study_closed(self, event: StudyClosed) -> None:
        study = self._asked_study(event.study)
        self._abandon(study, "complete" if study.succeeded else "cancelled")

    def _asked_study(self, name: str) -> StudyState:
        study = self._study(name)
        if study.spec.contract != "ask":
            raise Refused(f"the trials of {name} are trained on devices")
        return study
