"""Durable states of trials: which exist, which are kept, and reports that come late.

Theory of operation. A trial's ``parents`` are exactly its rows in the ledger's table of durable
states. When a state is added, or a trial or study ends, ``policies.retention`` says which states
stay. The others lose their rows in the same commit. ``Discard`` then has their files deleted in the
background, unless another row names the same file (files are named by their content). If a crash
loses a deletion, the janitor deletes the file later, because no row names it.

A trial's last state is often durable only after its study is over. So the engine remembers the best
trials of the studies that ended last, with the facts it needs to check such a report.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ..model.decisions import Discard, Parent
from ..model.events import Durable, Undurable
from ..model.study import OVER, forks
from ..model.trial import FINAL, Origin, Trial, TrialState
from ..model.trial_group import Fork
from ..policies.retention import best_at_the_end, best_completed, retained
from ..state.core import Core, Refused
from ..state.state import EndedTrial, StudyState
from ..strategies.base import rungs_of

#: Number of ended studies whose best trials are remembered; the newest ones count.
ENDED_KEPT = 32


class Checkpoints:
    """Keeps each trial's durable states, and discards those that are not needed any more."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._state = core.state

    def on_durable(self, event: Durable) -> None:
        if event.trial not in self._state.trials:
            self._on_late_durable(event)
            return
        trial = self._core.trial(event.trial)
        if trial.hashes.get(event.epoch) != event.state_hash:
            raise Refused(f"{trial.id} epoch {event.epoch} was not accepted with these bits")
        study = self._state.studies[trial.study]
        self.keep(study, trial, _parent(event))
        self._core.extensions.durable(trial.id, event.epoch, trial.parents)

    def share(self, study: StudyState, trial: Trial, states: Iterable[Parent]) -> None:
        """Record durable ``states`` of another trial that are also states of ``trial``.

        States are the same if their hashes are equal. Afterwards both trials refer to the same
        files. A file is kept as long as one of the trials refers to it.
        """
        if trial.state in FINAL and trial.id not in study.best:
            return  # it keeps none
        epochs = {state.epoch for state in trial.parents}
        for state in states:
            if state.epoch not in epochs and trial.hashes.get(state.epoch) == state.state_hash:
                trial.parents = self._with_parent(trial.id, trial.parents, state)
        self._retain(study, (trial,))

    def keep(self, study: StudyState, trial: Trial, parent: Parent) -> None:
        """Record that a state of an accepted epoch is in the store."""
        trial.parents = self._with_parent(trial.id, trial.parents, parent)
        if study.undurable.pop(trial.id, None):
            self._core.touch_study(study)
        self._retain(study, (trial,))

    def target_must_be_durable(self, study: StudyState, trial: Trial) -> bool:
        """Return True if the epoch at the trial's target must be in the store to count.

        Other trials may begin with that state after the last epoch of an interval of population
        based training, unless it is the last interval.
        """
        return trial.target != study.spec.strategy.max_epochs and forks(study.spec)

    def inherit(self, study: StudyState, trial: Trial, fork: Fork) -> None:
        """Make a new trial start from the state of the trial from which ``fork`` copies."""
        origin = Origin(fork.source, fork.epoch, fork.trial)
        self.begin_after(trial, origin, self._state.trials[fork.source].parents)
        assert trial.parents or not forks(study.spec)

    def begin_after(self, trial: Trial, origin: Origin, states: Iterable[Parent]) -> None:
        """Make a new trial start from the state of another trial after the epoch ``origin.epoch``.

        The state is the one among ``states`` that belongs to this epoch. Afterwards both trials
        refer to the same file, which is kept as long as one of them refers to it.
        """
        trial.origin, trial.epoch = origin, origin.epoch
        for state in states:
            if state.epoch == origin.epoch:
                trial.parents = self._with_parent(trial.id, (), state)
                break

    def on_undurable(self, event: Undurable) -> None:
        trial = self._core.trial(event.trial)
        study = self._state.studies[trial.study]
        if study.undurable.get(trial.id) == event.reason:
            raise Refused(f"that no checkpoint of {trial.id} can be written is known")
        study.undurable[trial.id] = event.reason
        self._core.touch_study(study)

    def _on_late_durable(self, event: Durable) -> None:
        """Handle the report of a durable state whose study is over.

        The state is kept if it is the last one of one of the study's best trials, else it is
        discarded.
        """
        ended_trials = self._state.ended.get(event.trial.rpartition("-")[0])
        if ended_trials is None:
            raise Refused(f"trial {event.trial} is not of a study that is known here")
        trial = ended_trials.get(event.trial)
        if trial is None:
            self._core.decide(Discard, uris=(event.uri,))
            return
        if (event.epoch, event.state_hash) != (trial.epoch, trial.state_hash):
            raise Refused(
                f"epoch {event.epoch} of {event.trial} is not its last, or has other bits"
            )
        trial.parents = self._with_parent(event.trial, trial.parents, _parent(event))
        self._drop(event.trial, trial.parents[1:])
        trial.parents = trial.parents[:1]
        self._core.extensions.durable(event.trial, event.epoch, trial.parents)

    def _with_parent(
        self, name: str, parents: tuple[Parent, ...], new: Parent
    ) -> tuple[Parent, ...]:
        if any(parent.epoch == new.epoch for parent in parents):
            raise Refused(f"{name} epoch {new.epoch} is durable already")
        self._core.changes.durables[name, new.epoch] = (new, self._core.at)
        return tuple(sorted((new, *parents), key=lambda parent: -parent.epoch))

    def trial_over(self, study: StudyState, trial: Trial) -> None:
        """Discard the states that are not needed any more once ``trial`` is over.

        These are states of ``trial``, or of the trial that ``trial`` displaces from the study's
        best.
        """
        before = [self._state.trials[name] for name in study.best]
        if trial.state is TrialState.COMPLETED:
            study.best = best_completed((*before, trial), study.spec)
        self._retain(study, (*before, trial))

    def _retain(self, study: StudyState, trials: Iterable[Trial]) -> None:
        pending_forks = [ask.fork for ask in study.asks.values() if ask.fork is not None]
        for trial in trials:
            pinned = self._pinned_epochs(study, trial)
            failed = self._state.keep_failed and study.status not in OVER
            to_keep = retained(trial, pinned, best=trial.id in study.best, keep_failed=failed)
            forked = {fork.epoch for fork in pending_forks if fork.source == trial.id}
            if forked:  # the trial forked from it is still to come
                to_keep = tuple(s for s in trial.parents if s in to_keep or s.epoch in forked)
            self._drop(trial.id, [state for state in trial.parents if state not in to_keep])
            trial.parents = to_keep
            is_needed = trial.state not in FINAL or trial.id in study.best
            if not is_needed and trial.id in study.undurable:
                del study.undurable[trial.id]
                self._core.touch_study(study)

    def _pinned_epochs(self, study: StudyState, trial: Trial) -> Collection[int]:
        """Return the epochs whose states are kept in addition to the newest ones.

        These are the rungs. In population based training they are the end of the last interval,
        from which other trials may continue. A forked trial also keeps the state that it started
        from, since no replay from epoch 0 could compute that state.
        """
        plan = study.spec.strategy
        if forks(study.spec):
            return (trial.epoch // plan.min_epochs * plan.min_epochs, trial.begin)
        return rungs_of(plan) if trial.origin is None else (*rungs_of(plan), trial.begin)

    def _drop(self, name: str, states: Iterable[Parent]) -> None:
        discarded = tuple(states)
        for state in discarded:
            self._core.changes.durables[name, state.epoch] = None
        if discarded:
            self._core.decide(Discard, uris=tuple(state.uri for state in discarded))

    def study_over(self, study: StudyState) -> None:
        """Remember the best trials of a study that is over. All its trials must be over, too."""
        trials = self._core.trials_of(study)
        resting = (*study.waiting, *study.handed_out)
        assert all(trial.state in FINAL or trial.id in resting for trial in trials)
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
