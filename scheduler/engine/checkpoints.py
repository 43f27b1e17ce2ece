"""The engine's second floor: what is durable, what of it is kept, and what is heard too late.

Theory of operation. A trial's ``parents`` are exactly its rows in the ledger's table of durable
states. When a state is added, or a trial or study ends, ``retention`` says which stay. The others
lose their rows in the same commit, and ``Discard`` has their files deleted behind the loop, unless
another row names the same file (files go by their content). A file whose deletion was lost in a
crash has no row; that is how the janitor finds it again.

The last state of a trial is often durable only when its study is over already. So the best trials
of the studies that ended last are remembered, with what such a report is checked by.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ..model.decisions import Discard, Parent
from ..model.events import Durable, Undurable
from ..model.study import forks
from ..model.trial import FINAL, Origin, Trial, TrialState
from ..model.trial_group import Fork
from ..policies.retention import best_at_the_end, best_completed, retained
from ..state.core import Core, Refused
from ..state.state import EndedTrial, StudyState
from ..strategies.base import rungs_of

#: Studies that are over of which the best trials are remembered.
ENDED_KEPT = 32


class Checkpoints:
    """Keeps each trial's durable states, and lets go of those that nobody needs any more."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._state = core.state

    def on_durable(self, event: Durable) -> None:
        if event.trial not in self._state.trials:
            self._durable_late(event)
            return
        trial = self._core.trial(event.trial)
        if trial.hashes.get(event.epoch) != event.state_hash:
            raise Refused(f"{trial.id} epoch {event.epoch} was not accepted with these bits")
        self.keep(self._state.studies[trial.study], trial, _parent(event))

    def keep(self, study: StudyState, trial: Trial, parent: Parent) -> None:
        """A state of an accepted epoch is in the store."""
        trial.parents = self._with(trial.id, trial.parents, parent)
        if study.undurable.pop(trial.id, None):
            self._core.touch_study(study)
        self._retain(study, (trial,))

    def must_be_durable(self, study: StudyState, trial: Trial, epoch: int) -> bool:
        """Whether ``epoch`` counts only once its state is in the store: others may go on from it.

        That of a trial which ends an interval of population based training, and has another.
        """
        return epoch == trial.target != study.spec.strategy.max_epochs and forks(study.spec)

    def inherit(self, study: StudyState, trial: Trial, fork: Fork) -> None:
        """A new trial begins with the source's state. The file is one; either row keeps it."""
        trial.origin, trial.epoch = Origin(fork.source, fork.epoch, fork.trial), fork.epoch
        source = self._state.trials[fork.source]
        for state in source.parents:
            if state.epoch == fork.epoch:
                trial.parents = self._with(trial.id, (), state)
        assert trial.parents or not forks(study.spec)

    def on_undurable(self, event: Undurable) -> None:
        trial = self._core.trial(event.trial)
        study = self._state.studies[trial.study]
        if study.undurable.get(trial.id) == event.reason:
            raise Refused(f"that no checkpoint of {trial.id} can be written is known")
        study.undurable[trial.id] = event.reason
        self._core.touch_study(study)

    def _durable_late(self, event: Durable) -> None:
        """Of a study that is over: the last state of one of its best trials, or one too many."""
        ended = self._state.ended.get(event.trial.rpartition("-")[0])
        if ended is None:
            raise Refused(f"trial {event.trial} is not of a study that is known here")
        trial = ended.get(event.trial)
        if trial is None:
            self._core.decide(Discard, uris=(event.uri,))
            return
        if (event.epoch, event.state_hash) != (trial.epoch, trial.state_hash):
            raise Refused(
                f"epoch {event.epoch} of {event.trial} is not its last, or has other bits"
            )
        trial.parents = self._with(event.trial, trial.parents, _parent(event))
        self._drop(event.trial, trial.parents[1:])
        trial.parents = trial.parents[:1]

    def _with(self, name: str, parents: tuple[Parent, ...], new: Parent) -> tuple[Parent, ...]:
        if any(parent.epoch == new.epoch for parent in parents):
            raise Refused(f"{name} epoch {new.epoch} is durable already")
        self._core.changes.durables[name, new.epoch] = (new, self._core.at)
        return tuple(sorted((new, *parents), key=lambda parent: -parent.epoch))

    def trial_over(self, study: StudyState, trial: Trial) -> None:
        """A trial is over: its states go, or those of the one that it beats do."""
        before = [self._state.trials[name] for name in study.best]
        if trial.state is TrialState.COMPLETED:
            study.best = best_completed((*before, trial), study.spec)
        self._retain(study, (*before, trial))

    def _retain(self, study: StudyState, trials: Iterable[Trial]) -> None:
        asked = [ask.fork for ask in study.asks.values() if ask.fork is not None]
        for trial in trials:
            kept = retained(trial, self._edges(study, trial), best=trial.id in study.best)
            lent = {fork.epoch for fork in asked if fork.source == trial.id}
            if lent:  # its heir is still to come
                kept = tuple(s for s in trial.parents if s in kept or s.epoch in lent)
            self._drop(trial.id, [state for state in trial.parents if state not in kept])
            trial.parents = kept
            needed = trial.state not in FINAL or trial.id in study.best
            if not needed and trial.id in study.undurable:
                del study.undurable[trial.id]
                self._core.touch_study(study)

    def _edges(self, study: StudyState, trial: Trial) -> Collection[int]:
        """Epochs whose states stay beside the newest: rungs; or where others may go on from, and
        what the trial itself was forked from, since it cannot be replayed from nothing.
        """
        plan = study.spec.strategy
        if forks(study.spec):
            return (trial.epoch // plan.min_epochs * plan.min_epochs, trial.begin)
        return rungs_of(plan)

    def _drop(self, name: str, states: Iterable[Parent]) -> None:
        gone = tuple(states)
        for state in gone:
            self._core.changes.durables[name, state.epoch] = None
        if gone:
            self._core.decide(Discard, uris=tuple(state.uri for state in gone))

    def study_over(self, study: StudyState) -> None:
        """The study is over, and so are all its trials; the best of them are remembered."""
        trials = self._core.trials_of(study)
        assert all(trial.state in FINAL for trial in trials)
        spec = study.spec
        study.best = best_at_the_end(trials, spec)
        self._retain(study, trials)
        best = [self._state.trials[name] for name in study.best]
        self._state.ended[spec.id] = {
            trial.id: EndedTrial(trial.epoch, trial.state_hash, trial.parents) for trial in best
        }
        for name in list(self._state.ended)[:-ENDED_KEPT]:
            del self._state.ended[name]


def _parent(event: Durable) -> Parent:
    return Parent(event.epoch, event.uri, event.state_hash)
