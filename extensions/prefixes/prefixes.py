"""Finds the trial that trains the common epochs of several trials, and copies the results.

Theory of operation. An epoch that a trial takes over becomes its own: the result, the hash and the
durable states are copied, and the epoch counts as having taken no time. So the strategy sees every
trial reach its rungs, in the order in which the trials reached them.

At the last epoch that trials have in common, the trainer keeps a copy of the state in memory
(``copies``). The trained trial may continue in another trainer, so the trainer of each epoch is
noted. If a copy is lost, the other trial starts from a durable state, or replays the prefix, as
after any loss.

A prefix may also have been trained by trials of other studies (``between``).

The index is not stored, since chains follow from the parameters.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...profiling.devices.signature import machine_of, refined
from ...scheduler.model.decisions import Segment
from ...scheduler.model.study import Metrics
from ...scheduler.model.trial import FINAL, AcceptedEpoch, Trial, TrialState
from ...scheduler.state.core import Core
from ...scheduler.state.state import StudyState
from .between import OtherStudies
from .chain import common_epochs, link_at
from .state import Indices, OfStudy, OfTrial, Trained, epochs_of, known_of, note_trial
from .tree import Companion


class Prefixes:
    """Finds trials that have epochs in common, and copies epochs from one trial to another."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._state = core.state
        self._indices = Indices(core)
        self.others = OtherStudies(core, self._indices)

    def take_over(self, study: StudyState, trial: Trial) -> list[Trained]:
        """Give ``trial`` the epochs up to its target that other trials have trained.

        Returns these other trials, of this study and of others, in the order in which they were
        used.
        """
        sources: dict[str, Trained] = {}
        if self._merges(study, trial):
            while trial.epoch < trial.target and (source := self._trained(study, trial)):
                sources[source.id] = source
                self._copy_epoch(study, trial, source)
        return list(sources.values())

    def _merges(self, study: StudyState, trial: Trial) -> bool:
        if self._of(study).apart:
            return False
        return trial.id not in self._indices.of(study).checked

    def _trained(self, study: StudyState, trial: Trial) -> Trained | None:
        """Return a trial that has trained ``trial``'s next epoch, of this study if possible."""
        epoch = trial.epoch + 1
        for other in self._indices.alike(study, trial, epoch):
            if epoch in epochs_of(self._state, other).reports:
                return other
        return self.others.trained(study, trial) if study.spec.data_token else None

    def _copy_epoch(self, study: StudyState, trial: Trial, source: Trained) -> None:
        epoch = trial.epoch + 1
        of_source, own = epochs_of(self._state, source), note_trial(self._state, trial)
        trainee = of_source.taken.get(epoch, source.id)
        metrics, state_hash = of_source.reports[epoch], source.hashes[epoch]
        self._core.accept(study, trial, epoch, dict(metrics), state_hash)
        own.reports[epoch], own.taken[epoch] = metrics, trainee
        if trial.signature != source.signature:
            study.signature = refined(study.signature, machine_of(source.signature))
        trial.signature, trial.trained_with = source.signature, source.trained_with
        trial.holder = _holder(of_source, epoch) if isinstance(of_source, OfTrial) else ""
        _note_holder(own, trial)
        self._core.changes.epochs.append(
            AcceptedEpoch(
                trial=trial.id,
                epoch=epoch,
                value=trial.values[epoch],
                metrics=metrics,
                state_hash=state_hash,
                signature=source.signature,
                seconds=0.0,
                device=source.members[0].device if source.members else "",
                slot=source.members[0].slot if source.members else 0,
                fence=0,
                at=self._core.at,
                members=source.members,
                system=source.trained_with,
                taken_from=trainee,
            )
        )

    def next_key(self, study: StudyState, trial: Trial) -> tuple[str, int]:
        """Return a key of the trial's next epoch. Equal keys mean the same epoch."""
        link = link_at(self._indices.of(study).chains[trial.id], trial.epoch + 1)
        return ("" if link is None else link.key), trial.epoch

    def trainee_of(self, study: StudyState, trial: Trial) -> Trial | None:
        """Return the trial that trains, or is about to train, the next epoch of ``trial``."""
        if not self._merges(study, trial):
            return None
        for other in self._indices.alike(study, trial, trial.epoch + 1):
            at_work = other.state in (TrialState.WAITING, TrialState.RUNNING)
            if (
                at_work
                and other.epoch == trial.epoch < other.target
                and other.id not in self._of(study).companions
                and other.id not in study.withheld
            ):
                return other
        return None

    def companion(self, study: StudyState, trial: Trial) -> Companion | None:
        """Return the pair of ``trial`` and the trial it waits for; None if it does not wait."""
        trainee = self.trainee_of(study, trial)
        if trainee is None:
            return None
        chains = self._indices.of(study).chains
        until = common_epochs(chains[trial.id], chains[trainee.id])
        return Companion(trial.number, trainee.number, until)

    def with_state(self, study: StudyState, trial: Trial, epoch: int) -> Iterator[Trial]:
        """Yield the trials that took ``epoch`` over from ``trial``, and so have its state."""
        for other in self._indices.alike(study, trial, epoch):
            if epochs_of(self._state, other).taken.get(epoch) == trial.id:
                yield other

    def copies(self, study: StudyState, trial: Trial, segment: Segment) -> tuple[int, ...]:
        """Return the epochs of the segment after which to keep a copy of the trial's state.

        These are the epochs after which another trial's hyperparameters begin to differ from those
        of ``trial``, or at which another trial pauses. A trial that was not proposed yet may begin
        to differ wherever the schedule of ``trial`` changes a hyperparameter, so these epochs are
        included. A check computes all its epochs itself, but other trials may take them over.
        """
        first, last = segment.first, segment.last
        if self._of(study).apart:
            return ()
        index = self._indices.of(study)
        chain = index.chains[trial.id]
        epochs = set[int]()
        if len(study.trials) < study.spec.n_trials:
            epochs |= {link.until for link in chain if link.until is not None}
        for name in index.by_key[chain[0].key] if chain else ():
            other = self._state.trials[name]
            if other is trial or other.state in FINAL or other.epoch > last:
                continue
            if name in index.checked:
                continue
            common = common_epochs(chain, index.chains[name])
            if common is not None and other.epoch <= common:
                epochs.add(common)
            if common is None or other.target <= common:
                epochs.add(other.target)
        return tuple(sorted(epoch for epoch in epochs if first <= epoch <= last))

    def record(self, study: StudyState, trial: Trial, metrics: Metrics) -> None:
        """Keep the report of the epoch that ``trial`` has trained, for other trials to take over.

        The trial's ``holder`` is the trainer that has trained the epoch.
        """
        own = note_trial(self._state, trial)
        own.reports[trial.epoch] = metrics
        _note_holder(own, trial)
        self._compare(study, trial, trial.epoch)
        if study.spec.data_token:
            self.others.compare(study, trial, trial.epoch)

    def _compare(self, study: StudyState, trial: Trial, epoch: int) -> None:
        """Compare an accepted epoch of ``trial`` with the same epoch of another trial.

        If bits differ, every trial trains its own epochs from now on, and the user is told.
        """
        if self._of(study).apart:
            return
        for other in self._indices.alike(study, trial, epoch):
            state_hash = other.hashes.get(epoch, "")
            if state_hash == trial.hashes[epoch]:
                return
            if state_hash:
                self._of(study).apart = True
                study.message = (
                    f"{trial.id} and {other.id} have the same hyperparameters up to epoch {epoch},"
                    f" but {trial.hashes[epoch][:12]} and {state_hash[:12]} came out: the code uses"
                    " something that it does not declare, or is not deterministic. From now on"
                    " every trial trains its epochs itself"
                )
                self._core.touch_study(study)
                return

    def compare_all(self, study: StudyState) -> None:
        """Compare all epochs that the trials of a reopened study have trained."""
        for name in study.trials:
            trial = self._state.trials[name]
            for epoch in sorted(trial.hashes.keys() - epochs_of(self._state, trial).taken.keys()):
                self._compare(study, trial, epoch)

    def study_over(self, study: StudyState) -> None:
        """Forget a study that has ended, once its trials are recorded for other studies."""
        self.others.study_over(study)
        self._indices.forget_study(study.spec.id)

    def _of(self, study: StudyState) -> OfStudy:
        return known_of(self._state).studies[study.spec.id]


def _note_holder(own: OfTrial, trial: Trial) -> None:
    """Note the trainer that has the state after the trial's epoch, if the trainer has changed."""
    if next(reversed(own.holders.values()), None) != trial.holder:
        own.holders[trial.epoch] = trial.holder


def _holder(own: OfTrial, epoch: int) -> str:
    """Return the trainer that had the trial's state after ``epoch``; it may have kept a copy."""
    return next((own.holders[at] for at in reversed(own.holders) if at <= epoch), "")
