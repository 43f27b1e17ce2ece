"""Input to trials: proposed configurations, suggested values, enqueued configurations."""

from __future__ import annotations

from ..model.decisions import Ask
from ..model.events import Proposed, Suggested, TrialEnqueued
from ..model.study import Params, Scalar, trial_id
from ..model.trial import Trial, TrialState
from ..model.trial_group import Entry
from ..state.core import Core, Refused
from ..state.state import StudyState
from .checkpoints import Checkpoints
from .proposals import Proposals


class Trials:
    """Makes trials from what samplers and users propose."""

    def __init__(
        self,
        core: Core,
        *,
        checkpoints: Checkpoints,
        proposals: Proposals,
    ) -> None:
        self._core = core
        self._state = core.state
        self._checkpoints = checkpoints
        self._proposals = proposals

    def on_trial_enqueued(self, event: TrialEnqueued) -> None:
        study = self._core.study(event.study)
        branches = sum(trial.branched for trial in self._core.trials_of(study))
        expected = len(study.trials) - branches + study.to_come
        promised = expected + len(study.enqueued) * study.spec.replicates
        if study.spec.contract == "ask" or promised < study.spec.n_trials:
            study.enqueued.append(event.params)
        else:
            self._assign_enqueued(study, event.params)

    def _assign_enqueued(self, study: StudyState, params: Params) -> None:
        """Assign enqueued parameters to trials that exist already, and put these trials first.

        This is necessary if the study has created all its trials already. The parameters go to all
        replicates of a configuration of which no trial has begun. Raises ``Refused`` if there is no
        such configuration.
        """
        trials, size = self._core.trials_of(study), study.spec.replicates
        groups = (trials[first : first + size] for first in range(0, len(trials), size))
        not_started = [g for g in groups if all(self._is_replaceable(t) for t in g)]
        if not not_started:
            raise Refused(f"all {study.spec.n_trials} trials of {study.spec.name} have begun")
        enqueued = dict(params)
        matching = (g for g in not_started if dict(g[0].params).items() >= enqueued.items())
        for trial in next(matching, not_started[-1]):
            self._put_first(trial, enqueued)

    def _is_replaceable(self, trial: Trial) -> bool:
        """Return True if an enqueued configuration may replace that of ``trial``.

        The trial must be in the queue, without a segment so far.
        """
        waits = _not_started(trial) and trial.id in self._state.ready
        return waits and not trial.enqueued and not trial.branched

    def _put_first(self, trial: Trial, enqueued: dict[str, Scalar]) -> None:
        self._core.reparametrise(trial, tuple((dict(trial.params) | enqueued).items()))
        trial.enqueued = True
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
        if ask.resampled:
            self._proposals.resample(study, ask, event)
            self._proposals.settle(study)
            self._core.offer_slots()
            return
        fork = ask.fork
        names = []
        for params, notes, enqueued in self._configured(study, ask, event):
            number = len(study.trials)
            trial = Trial(
                id=trial_id(study.spec.id, number),
                study=study.spec.id,
                number=number,
                params=params,
                created_at=event.at,
                notes=notes,
                enqueued=enqueued,
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
            # The last configuration may still want replicates.
            exhausted = event.exhausted and len(study.trials) % study.spec.replicates == 0
            self._proposals.enter(study, study.strategy.proposed(tuple(names), exhausted=exhausted))
        else:
            self._proposals.enter(study, tuple(Entry(name, fork.epochs) for name in names))
        self._proposals.settle(study)
        self._core.offer_slots()

    def _configured(
        self, study: StudyState, ask: Ask, event: Proposed
    ) -> list[tuple[Params, str, bool]]:
        """Return the parameters, the note and the "enqueued" flag of each trial in an answer.

        All replicates of a configuration get the same parameters, note and flag.
        """
        notes_of = event.notes or ("",) * len(event.trials)
        flags = (index < len(ask.enqueued) for index in range(len(event.trials)))
        proposals = list(zip(event.trials, notes_of, flags, strict=True))
        if (size := study.spec.replicates) == 1:
            return proposals
        n_known, configured = len(study.trials), []
        if n_known % size:
            last = self._state.trials[study.trials[-1]]
            configured += [(last.params, last.notes, last.enqueued)] * min(ask.n, -n_known % size)
        for each in proposals:
            configured += [each] * min(size, ask.n - len(configured))
        return configured

    def on_suggested(self, event: Suggested) -> None:
        trial = self._core.trial(event.trial)
        if any(name == event.name for name, _ in trial.params):
            raise Refused(f"{event.name} of {trial.id} is known already")
        self._core.reparametrise(trial, (*trial.params, (event.name, event.value)))


def _not_started(trial: Trial) -> bool:
    """Return True if the trial waits for its first segment."""
    return trial.state is TrialState.WAITING and not trial.begun
