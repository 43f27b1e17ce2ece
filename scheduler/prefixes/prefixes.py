"""Who trains the epochs that trials of a study have in common, and who takes them over.

Theory of operation. Trials with a common prefix (``chain``) need it trained once. The trial that
does so is the *trainee*. Another one that is at the same epoch waits as its *companion*: it is in
no queue and holds no slot. Each accepted epoch of the trainee becomes the companion's own: result,
hash and durable states are copied, and it took no time. So the strategy sees every trial reach its
rungs, in the order in which they reached them. A companion that has reached its target is done as
any trial. One whose next epoch is not the trainee's any more goes into the queue. If the trainee
pauses, fails, or is cancelled, the first companion takes its place. A trial that comes later takes
over what was trained before.

Where trials part, the trainer keeps a copy of the state in memory (``copies``). It may be lost:
then the trial begins at a durable state, or replays the prefix, as after any loss.

Nothing here is stored but who is a companion: chains follow from the parameters.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from ..model.decisions import Segment
from ..model.study import Metrics
from ..model.trial import FINAL, AcceptedEpoch, Trial, TrialState
from ..state.core import Core
from ..state.state import StudyState
from .chain import Chain, chain_of, common_epochs, has_prefixes, is_checked, link_at
from .tree import Companion

#: A study with so many companions is not asked for more trials.
MAX_COMPANIONS = 256


@dataclass(slots=True)
class _Index:
    """What is known of a study's trials; all of it follows from their parameters."""

    chains: dict[str, Chain] = field(default_factory=dict)
    #: By the key of a link: the trials that have it, and up to which epoch it governs theirs.
    by_key: defaultdict[str, dict[str, int | None]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    #: The trials that take over nothing.
    checked: set[str] = field(default_factory=set)


class Prefixes:
    """Finds the trials that have epochs in common, and copies epochs from one to another."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._state = core.state
        self._indices: dict[str, _Index] = {}

    def take_over(self, study: StudyState, trial: Trial) -> Trial | None:
        """Give ``trial``, up to its target, the epochs that other trials have trained.

        Returns the last one of these trials; None if there was none.
        """
        source = None
        if self._merges(study, trial):
            while trial.epoch < trial.target and (found := self._trained(study, trial)):
                source = found
                self._copy_epoch(study, trial, source)
        return source

    def _merges(self, study: StudyState, trial: Trial) -> bool:
        if not has_prefixes(study.spec) or study.apart:
            return False
        return trial.id not in self._index(study).checked

    def _trained(self, study: StudyState, trial: Trial) -> Trial | None:
        """A trial that has trained the next epoch of ``trial``."""
        epoch = trial.epoch + 1
        for other in self._alike(study, trial, epoch):
            if epoch in other.reports:
                return other
        return None

    def _copy_epoch(self, study: StudyState, trial: Trial, source: Trial) -> None:
        epoch = trial.epoch + 1
        trainee = source.taken.get(epoch, source.id)
        metrics, state_hash = source.reports[epoch], source.hashes[epoch]
        self._core.accept(study, trial, epoch, metrics, state_hash)
        trial.reports[epoch], trial.taken[epoch] = metrics, trainee
        trial.signature, trial.holder = source.signature, source.holder
        trial.trained_with = source.trained_with
        self._core.changes.epochs.append(
            AcceptedEpoch(
                trial=trial.id,
                epoch=epoch,
                value=source.values[epoch],
                metrics=metrics,
                state_hash=state_hash,
                signature=source.signature,
                seconds=0.0,
                device=source.device,
                slot=source.slot,
                fence=0,
                at=self._core.at,
                members=source.members,
                system=source.trained_with,
                taken_from=trainee,
            )
        )

    def next_key(self, study: StudyState, trial: Trial) -> tuple[str, int]:
        """Which epoch the trial needs next. Who are at the same place need the same one."""
        link = link_at(self._index(study).chains[trial.id], trial.epoch + 1)
        return ("" if link is None else link.key), trial.epoch

    def trainee_of(self, study: StudyState, trial: Trial) -> Trial | None:
        """The trial that trains, or is about to train, the next epoch of ``trial``."""
        if not self._merges(study, trial):
            return None
        for other in self._alike(study, trial, trial.epoch + 1):
            at_work = other.state in (TrialState.WAITING, TrialState.RUNNING)
            if (
                at_work
                and other.epoch == trial.epoch < other.target
                and other.id not in study.companions
            ):
                return other
        return None

    def companion(self, study: StudyState, trial: Trial) -> Companion | None:
        """For whom the companion ``trial`` waits, and how far; None once it waits no more."""
        trainee = self.trainee_of(study, trial)
        if trainee is None:
            return None
        chains = self._index(study).chains
        until = common_epochs(chains[trial.id], chains[trainee.id])
        return Companion(trial.number, trainee.number, until)

    def with_state(self, study: StudyState, trial: Trial, epoch: int) -> Iterator[Trial]:
        """The other trials that took ``epoch`` over from ``trial``, and so have its state."""
        if has_prefixes(study.spec):
            for other in self._alike(study, trial, epoch):
                if other.taken.get(epoch) == trial.id:
                    yield other

    def copies(self, study: StudyState, trial: Trial, segment: Segment) -> tuple[int, ...]:
        """After which epochs of the segment a copy of the trial's state is to be kept.

        There other trials go on in another way, or pause. They may take over the epochs of a trial
        that takes over none itself.
        """
        first, last = segment.first, segment.last
        if not has_prefixes(study.spec) or study.apart:
            return ()
        index = self._index(study)
        chain = index.chains[trial.id]
        found = set[int]()
        for name in index.by_key[chain[0].key] if chain else ():
            other = self._state.trials[name]
            if other is trial or other.state in FINAL or other.epoch > last:
                continue
            if name in index.checked:
                continue
            common = common_epochs(chain, index.chains[name])
            if common is not None and other.epoch <= common:
                found.add(common)
            if common is None or other.target <= common:
                found.add(other.target)
        return tuple(sorted(epoch for epoch in found if first <= epoch <= last))

    def record(self, study: StudyState, trial: Trial, metrics: Metrics) -> None:
        """Keep what was reported of the epoch that ``trial`` has trained, for others to take."""
        if has_prefixes(study.spec):
            trial.reports[trial.epoch] = metrics
            self._compare(study, trial, trial.epoch)

    def _compare(self, study: StudyState, trial: Trial, epoch: int) -> None:
        """Compare an accepted epoch of ``trial`` with the same epoch of a trial like it.

        If bits differ, every trial trains its own epochs from now on, and the user is told.
        """
        if study.apart:
            return
        for other in self._alike(study, trial, epoch):
            known = other.hashes.get(epoch, "")
            if known == trial.hashes[epoch]:
                return
            if known:
                study.apart = True
                study.message = (
                    f"{trial.id} and {other.id} have the same hyperparameters up to epoch {epoch},"
                    f" but {trial.hashes[epoch][:12]} and {known[:12]} came out: the code uses"
                    " something that it does not declare, or is not deterministic. From now on"
                    " every trial trains its epochs itself"
                )
                self._core.touch_study(study)
                return

    def compare_all(self, study: StudyState) -> None:
        """Compare all epochs that the trials of a study that is back have trained."""
        for name in study.trials if has_prefixes(study.spec) else ():
            trial = self._state.trials[name]
            for epoch in sorted(trial.hashes.keys() - trial.taken.keys()):
                self._compare(study, trial, epoch)

    def forget_study(self, study: str) -> None:
        self._indices.pop(study, None)

    def _alike(self, study: StudyState, trial: Trial, epoch: int) -> Iterator[Trial]:
        """The other trials whose bits after ``epoch`` are those of ``trial``, by number."""
        index = self._index(study)
        link = link_at(index.chains[trial.id], epoch)
        if link is None:
            return
        for name, until in index.by_key[link.key].items():
            if name != trial.id and (until is None or epoch <= until):
                yield self._state.trials[name]

    def _index(self, study: StudyState) -> _Index:
        """The study's index, with all of its trials by their numbers."""
        name = study.spec.id
        if name in self._core.reparametrised:
            self._core.reparametrised.discard(name)
            self.forget_study(name)
        index = self._indices.get(name)
        if index is None:
            index = self._indices[name] = _Index()
        for known in range(len(index.chains), len(study.trials)):
            trial = self._state.trials[study.trials[known]]
            index.chains[trial.id] = chain = chain_of(study.spec, trial)
            for link in chain:
                index.by_key[link.key][trial.id] = link.until
            if is_checked(study.spec, trial):
                index.checked.add(trial.id)
        return index
