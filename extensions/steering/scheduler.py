"""Carries out users' commands for single trials in the scheduler.

Theory of operation. A stopped trial is pruned at its last accepted epoch. Reports of its running
attempt are refused, and its trainer drops the trial within a step. A paused trial ends its epoch,
and is then in no queue (``StudyState.withheld``) until it is resumed. If the trials of a rung wait
for each other, they do not wait for a paused trial. A promoted trial has a *goal*, an epoch that it
reaches whatever its strategy decides. The trial goes from rung to rung, where its strategy treats
it like any trial. If the goal is between rungs or after the last one, the strategy is not told when
the trial reaches the goal. A retried trial, and a promoted trial that is over, continues from its
newest kept state. If no state is kept, the epochs of the trial are computed again, with the same
bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...scheduler.engine.engine import Parts
from ...scheduler.model.decisions import Cut
from ...scheduler.model.study import study_of_trial
from ...scheduler.model.trial import FINAL, Step, Trial, TrialState
from ...scheduler.model.trial_group import Entry
from ...scheduler.state.core import Refused
from ...scheduler.state.extensions import Extension
from ...scheduler.state.state import Attempt, StudyState
from ...scheduler.strategies.base import comparison_epochs
from .events import Steered
from .verbs import SYNCHRONOUS, goal, refusal

#: The name of the extension, and the key of its state in ``EngineState.ext``.
NAME = "steering"
_ON_ITS_WAY = (TrialState.WAITING, TrialState.RUNNING)


def plug(parts: Parts) -> Extension:
    """Return the extension that carries out users' commands for single trials."""
    steering = _Steering(parts)
    return Extension(
        name=NAME,
        handlers={Steered: steering.on_steered},
        keeps=steering.keeps,
        goes_on=steering.goes_on,
        aside=steering.aside,
        on_moved=steering.on_moved,
        forget=steering.forget,
    )


class _Steering:
    """The handlers of the extension, with the parts of the engine on which they act."""

    def __init__(self, parts: Parts) -> None:
        self._core = parts.core
        self._state = parts.core.state
        self._checkpoints = parts.checkpoints
        self._proposals = parts.proposals

    def _goals(self) -> dict[str, int]:
        """Return the epoch that each promoted trial is to reach, by trial id.

        Handlers change the returned dict to set and remove goals.
        """
        own: dict[str, Any] = self._state.ext.setdefault(NAME, {"goals": {}})
        goals: dict[str, int] = own["goals"]
        return goals

    def on_steered(self, event: Steered) -> None:
        trial = self._core.trial(event.trial)
        study = self._core.study(trial.study)
        if why := refusal(study, trial, event.verb, event.to):
            raise Refused(f"{trial.id}: {why}")
        self._proposals.go_on(study, NAME)
        if event.verb == "stop":
            self._stop(study, trial)
        elif event.verb == "pause":
            self._pause(study, trial, event)
        elif event.verb == "resume":
            self._resume(study, trial)
        elif event.verb == "promote":
            self._promote(study, trial, goal(study, trial, event.to))
        else:
            self._revive(study, trial, trial.target)
        self._core.touch_study(study)
        self._core.moved[study.spec.id] = None  # others may wait for what it would have done
        self._core.invalidate_plan()
        self._proposals.settle(study)
        self._core.offer_slots()

    def _stop(self, study: StudyState, trial: Trial) -> None:
        if trial.fence:
            self._core.revoke(trial)
        self._proposals.end_early(study, trial, Step.PRUNE)
        study.withheld.pop(trial.id, None)
        self._checkpoints.trial_over(study, trial)
        self._proposals.abandon(study, trial)

    def _pause(self, study: StudyState, trial: Trial, event: Steered) -> None:
        by, why = f" by {event.who}" if event.who else "", f": {event.why}" if event.why else ""
        self._proposals.withhold(study, trial, f"it was paused{by}{why}")
        attempt = self._state.attempts.get(trial.fence)
        if attempt is not None and not attempt.cut:
            attempt.cut = True
            self._core.decide(Cut, trial=trial.id, fence=trial.fence)
        self._go_on_without(study, trial)

    def _go_on_without(self, study: StudyState, trial: Trial) -> None:
        """Let the other trials of a rung go on without waiting for the paused ``trial``."""
        if study.spec.strategy.name in SYNCHRONOUS and trial.state in _ON_ITS_WAY:
            self._proposals.abandon(study, trial)

    def _resume(self, study: StudyState, trial: Trial) -> None:
        del study.withheld[trial.id]
        elsewhere = trial.id in self._core.extensions.aside()  # it waits for another trial
        if trial.state is TrialState.WAITING and not elsewhere:
            self._proposals.enter_queue(study, trial)
            self._proposals.put_first(trial)

    def _promote(self, study: StudyState, trial: Trial, to: int) -> None:
        if trial.id in study.withheld:
            self._resume(study, trial)
        self._goals()[trial.id] = to
        if trial.state in FINAL:
            self._revive(study, trial, self._next_target(study, trial, to))
        elif trial.state is TrialState.PAUSED:
            target = self._next_target(study, trial, to)
            self._proposals.enter(study, (Entry(trial.id, target),))
        self._proposals.put_first(trial)

    def _revive(self, study: StudyState, trial: Trial, target: int) -> None:
        trial.failure, trial.failures, trial.losses, trial.target = None, 0, 0, target
        if trial.id in study.best:
            study.best.remove(trial.id)
        self._core.move(study, trial, Step.REVIVE)
        self._proposals.enter_queue(study, trial)
        self._proposals.put_first(trial)

    def _next_target(self, study: StudyState, trial: Trial, to: int) -> int:
        """Return the next rung of the trial, or the goal ``to`` if that comes first."""
        rungs = comparison_epochs(study.spec.strategy)
        return min((epoch for epoch in rungs if trial.epoch < epoch < to), default=to)

    def keeps(self, study: StudyState, trial: Trial, after: Attempt | None) -> bool:
        """Return True if the trial is paused, and so must not enter the queue after an attempt."""
        return after is not None and trial.id in study.withheld

    def goes_on(self, study: StudyState, trial: Trial) -> int:
        """Return the next epoch to train to for a trial that has not reached its goal.

        The result is 0 for a trial that has no goal or has reached its goal.
        """
        to = self._goals().get(trial.id, 0)
        return self._next_target(study, trial, to) if trial.epoch < to else 0

    def aside(self, study: StudyState) -> Iterator[tuple[str, str]]:
        for name, why in study.withheld.items():
            if self._state.trials[name].state is TrialState.WAITING:
                yield name, why

    def on_moved(self, study: StudyState) -> None:
        """Put promoted trials before others, and forget trials that are over.

        A trial that has reached its goal loses the goal.
        """
        goals = self._goals()
        for name in list(study.withheld):
            trial = self._state.trials[name]
            if trial.state in FINAL:
                del study.withheld[name]
            else:
                self._go_on_without(study, trial)
        own = [each for each in goals.items() if study_of_trial(each[0]) == study.spec.id]
        for name, to in own:
            trial = self._state.trials[name]
            if trial.state in FINAL or trial.epoch >= to:
                del goals[name]
            else:
                self._proposals.put_first(trial)

    def forget(self, study: str) -> None:
        if NAME in self._state.ext:
            goals = self._goals()
            for name in [each for each in goals if study_of_trial(each) == study]:
                del goals[name]
            if not goals:
                del self._state.ext[NAME]
