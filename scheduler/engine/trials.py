"""Input to trials: proposed configurations, suggested values, enqueued configurations."""

from __future__ import annotations

from ..model.events import Proposed, Suggested, TrialEnqueued
from ..model.study import Params, trial_id
from ..model.trial import Trial, TrialState
from ..model.trial_group import Entry
from ..state.core import Core, Refused
from ..state.state import StudyState
from .checkpoints import Checkpoints
from .dispatch import Dispatcher
from .proposals import Proposals


class Trials:
    """Makes trials from what samplers and users propose."""

    def __init__(
        self,
        core: Core,
        *,
        checkpoints: Checkpoints,
        proposals: Proposals,
        dispatcher: Dispatcher,
    ) -> None:
        self._core = core
        self._state = core.state
        self._checkpoints = checkpoints
        self._proposals = proposals
        self._dispatcher = dispatcher

    def on_trial_enqueued(self, event: TrialEnqueued) -> None:
        study = self._core.study(event.study)
        asked = len(study.trials) + sum(ask.n for ask in study.asks.values())
        if study.spec.contract == "ask" or asked + len(study.enqueued) < study.spec.n_trials:
            study.enqueued.append(event.params)
        else:
            self._assign_enqueued(study, event.params)

    def _assign_enqueued(self, study: StudyState, params: Params) -> None:
        """Give the enqueued parameters to a trial that has not begun, and put it first in the
        queue.

        It is used when all trials are proposed already. Raises ``Refused`` if all have begun.
        """
        not_started = [t for t in self._core.trials_of(study) if _not_started(t) and not t.enqueued]
        if not not_started:
            raise Refused(f"all {study.spec.n_trials} trials of {study.spec.name} have begun")
        enqueued = dict(params)
        matching = (t for t in not_started if dict(t.params).items() >= enqueued.items())
        trial = next(matching, not_started[-1])
        trial.params, trial.enqueued = tuple((dict(trial.params) | enqueued).items()), True
        ready = self._state.ready
        trial.since = min(self._state.trials[name].since for name in ready)
        ready.remove(trial.id)
        not_displaced = [
            _not_started(t) and t.enqueued for t in map(self._state.trials.__getitem__, ready)
        ]
        ready.insert(not_displaced.index(False) if False in not_displaced else len(ready), trial.id)
        self._core.changes.trials[trial.id] = trial

    def on_proposed(self, event: Proposed) -> None:
        study = self._core.study(event.study)
        if event.index not in study.asks:
            raise Refused(f"ask {event.index} of {event.study} was answered already")
        ask = study.asks.pop(event.index)
        fork, enqueued = ask.fork, len(ask.enqueued)
        names = []
        notes_of = event.notes or ("",) * len(event.trials)
        for index, (params, notes) in enumerate(zip(event.trials, notes_of, strict=True)):
            number = len(study.trials)
            trial = Trial(
                id=trial_id(study.spec.id, number),
                study=study.spec.id,
                number=number,
                params=params,
                created_at=event.at,
                notes=notes,
                enqueued=index < enqueued,
            )
            if fork is not None:
                self._checkpoints.inherit(study, trial, fork)
            self._state.trials[trial.id] = trial
            study.trials.append(trial.id)
            study.active += 1
            self._core.changes.trials[trial.id] = trial
            names.append(trial.id)
        if study.spec.contract == "ask":
            self._proposals.hand_out(study, names)
            return
        if fork is None:
            self._proposals.enter(
                study, study.strategy.proposed(tuple(names), exhausted=event.exhausted)
            )
        else:
            self._proposals.enter(study, tuple(Entry(name, fork.epochs) for name in names))
        self._proposals.settle(study)
        self._dispatcher.fill()

    def on_suggested(self, event: Suggested) -> None:
        trial = self._core.trial(event.trial)
        if any(name == event.name for name, _ in trial.params):
            raise Refused(f"{event.name} of {trial.id} is known already")
        trial.params = (*trial.params, (event.name, event.value))
        self._core.changes.trials[trial.id] = trial


def _not_started(trial: Trial) -> bool:
    """Whether the trial waits for its first segment."""
    return trial.state is TrialState.WAITING and trial.dispatched_at is None
