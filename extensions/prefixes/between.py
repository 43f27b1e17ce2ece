"""Takes over epochs from trials of other studies, if the user declares that the data are equal.

Theory of operation. The trials of one study have the same code, data, seed and machine. So do
trials of two studies in the same *group* that have computed under the same machine signature and
system configuration. A group is the user's token for the data, the digest of all that the code
imports, the seed, and the size of the batches and their shards. Within a group, chains (``chain``)
tell which epochs of two trials have equal bits, as they do within a study.

A trial takes over epochs that were accepted before the trial is entered. It takes them over only up
to the last durable state that both trials have in common. So it never has to replay what another
study has trained, and the best trial has its state in the store. The ledger has a separate row for
this trial's use of the state, so the file stays when the other study drops it.

The trials of a study that has ended are in the event that starts this study (``EarlierTrial``), or
are added when the other study ends. They are used until that study is reopened or deleted. The
trials of a running study are read from that study's own state.

An input that the user did not declare is in no key. So if an epoch trained in this study has other
bits than the same epoch in another study, this study takes over nothing more from other studies,
and tells the user so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ...profiling.devices.signature import agree, machine_of, system_part, system_part_of
from ...scheduler.model.decisions import Parent
from ...scheduler.model.finished import EarlierTrial, PastTrial
from ...scheduler.model.study import DELETED, StudySpec, replicate_of
from ...scheduler.model.trial import Trial
from ...scheduler.state.core import Core
from ...scheduler.state.state import StudyState
from ...scheduler.strategies.base import UNBOUNDED
from .chain import Chain, common_epochs, digest, has_prefixes, link_at, links_of_replicate
from .state import Index, Indices, OfTrial, Trained, epochs_of, known_of, note_trial


def group_of(spec: StudySpec) -> str:
    """Return the group of a study; empty if it has no data token.

    Two trials of studies in one group have the same bits up to the epoch at which their
    hyperparameters first differ. A study's name, its sampler and the length of training do not
    affect the bits of any epoch, so the group does not depend on them.
    """
    if not (spec.data_token and has_prefixes(spec)):
        return ""
    code = spec.contract, spec.code.target.rpartition("/")[2], spec.code.digest
    shape = spec.batch_size, spec.shards, spec.max_width
    supernet = spec.strategy.supernet
    inherited = [(supernet.state_hash, supernet.batches)] if supernet else []
    return digest(spec.data_token, code, spec.seed, shape, spec.environment, *inherited)


def earlier_trial(spec: StudySpec, trial: Trial, epochs: PastTrial | OfTrial) -> EarlierTrial:
    """Return a record of ``trial``, whose study has ended, with the ``epochs`` to take over."""
    return EarlierTrial(
        id=trial.id,
        params=trial.params,
        replicate=replicate_of(spec, trial.number),
        signature=trial.signature,
        trained_with=trial.trained_with,
        members=trial.members,
        reports=dict(epochs.reports),
        hashes=dict(trial.hashes),
        taken=dict(epochs.taken),
        parents=trial.parents,
    )


class OtherStudies:
    """Finds epochs of other studies that trials may take over, and compares them."""

    def __init__(self, core: Core, indices: Indices) -> None:
        self._core = core
        self._state = core.state
        self._indices = indices
        self._groups: dict[str, str] = {}
        #: The index of each study's earlier trials, and the trials from which the index was made.
        self._earlier: dict[str, tuple[Sequence[EarlierTrial], Index]] = {}

    def trained(self, study: StudyState, trial: Trial) -> Trained | None:
        """Return a trial of another study whose next epoch ``trial`` may take over.

        Returns None if there is no such trial.
        """
        if known_of(self._state).studies[study.spec.id].apart_from_others:
            return None
        epoch = trial.epoch + 1
        for other, chain in self._alike(study, trial, epoch):
            if self._is_usable(study, trial, other, chain, epoch):
                return other
        return None

    def _is_usable(
        self, study: StudyState, trial: Trial, other: Trained, chain: Chain, epoch: int
    ) -> bool:
        """Return True if ``trial`` may take over ``epoch`` of ``other``.

        It may if ``epoch`` was reported with all metrics that the study needs, and if the store has
        a state after ``epoch``, or after a later epoch up to which both trials have equal bits.
        """
        reported = dict(epochs_of(self._state, other).reports.get(epoch, ()))
        if not reported.keys() >= {study.spec.metric, *study.spec.also}:
            return False
        if not self.is_of_here(study, other.signature):
            return False
        common = common_epochs(self._indices.of(study).chains[trial.id], chain)
        until = min(
            UNBOUNDED if common is None else common, study.spec.strategy.max_epochs or UNBOUNDED
        )
        return any(
            epoch <= state.epoch <= until and other.hashes.get(state.epoch) == state.state_hash
            for state in other.parents
        )

    def is_of_here(self, study: StudyState, signature: str) -> bool:
        """Return True if the study's devices and trials compute under ``signature``.

        They do if the signature's machine is of the same class as theirs, as far as that is known,
        and its system configuration is that of the study's trials.
        """
        if study.system is None and study.spec.system_fixed:
            return False  # the study's system configuration is not chosen yet
        if system_part_of(signature) != system_part(dict(study.system or ())):
            return False
        machine = machine_of(signature)
        if study.signature:
            return agree(machine, study.signature)
        return any(
            agree(device.machine, machine)
            for name, device in self._state.devices.items()
            if name not in study.refused
        )

    def compare(self, study: StudyState, trial: Trial, epoch: int) -> None:
        """Compare an epoch that ``trial`` has trained with the same epoch in other studies."""
        if known_of(self._state).studies[study.spec.id].apart_from_others:
            return
        for other, _ in self._alike(study, trial, epoch):
            its_hash = other.hashes.get(epoch, "")
            if not its_hash or not self.is_of_here(study, other.signature):
                continue
            if its_hash == trial.hashes[epoch]:
                return
            known_of(self._state).studies[study.spec.id].apart_from_others = True
            study.message = (
                f"{trial.id} and {other.id} of another study have the same code, data token and"
                f" hyperparameters up to epoch {epoch}, but {trial.hashes[epoch][:12]} and"
                f" {its_hash[:12]} came out: the data are other ones, or the code uses something"
                " else that it does not declare. From now on nothing is taken over from other"
                " studies"
            )
            self._core.touch_study(study)
            return

    def _alike(
        self, study: StudyState, trial: Trial, epoch: int
    ) -> Iterator[tuple[Trained, Chain]]:
        """Yield trials of other studies that have the same bits as ``trial`` after ``epoch``."""
        group = self._group(study.spec)
        link = link_at(self._indices.of(study).chains[trial.id], epoch) if group else None
        if link is None:
            return
        for study_id, of_study in known_of(self._state).studies.items():
            other = self._state.studies[study_id]
            if other is study or of_study.apart or self._group(other.spec) != group:
                continue
            index = self._indices.of(other)
            for name in index.alike(link, epoch):
                yield self._state.trials[name], index.chains[name]
        trials, index = self._earlier_index(study)
        for name in index.alike(link, epoch):
            if self._state.finished.get(trials[int(name)].study, DELETED) != DELETED:
                yield trials[int(name)], index.chains[name]

    def _earlier_index(self, study: StudyState) -> tuple[Sequence[EarlierTrial], Index]:
        earlier = known_of(self._state).studies[study.spec.id].earlier
        cached = self._earlier.get(study.spec.id)
        if cached is None or cached[0] is not earlier:
            index = Index()
            for number, each in enumerate(earlier):
                index.add(str(number), links_of_replicate(each.replicate, dict(each.params)))
            cached = self._earlier[study.spec.id] = earlier, index
        return cached

    def _group(self, spec: StudySpec) -> str:
        if spec.id not in self._groups:
            self._groups[spec.id] = group_of(spec)
        return self._groups[spec.id]

    def study_over(self, study: StudyState) -> None:
        """Keep records of the study's trials for the other studies of its group."""
        if group := self._group(study.spec):
            studies, name = known_of(self._state).studies, study.spec.id
            trials = [] if studies[name].apart else self._core.trials_of(study)
            past_trials = [
                earlier_trial(study.spec, trial, note_trial(self._state, trial))
                for trial in trials
                if trial.origin is None and (trial.parents or trial.id in study.best)
            ]
            for other, its in studies.items():
                if other != name and self._group(self._state.studies[other].spec) == group:
                    # Records from an earlier end, after which the study was reopened, are old.
                    before = [each for each in its.earlier if each.study != name]
                    its.earlier = [*before, *past_trials]
        self.forget_study(study.spec.id)

    def states_changed(self, name: str, states: tuple[Parent, ...]) -> None:
        """Note the durable states that trial ``name``, whose study has ended, has now."""
        for its in known_of(self._state).studies.values():
            if any(each.id == name for each in its.earlier):
                its.earlier = [
                    replace(each, parents=states) if each.id == name else each
                    for each in its.earlier
                ]

    def forget_study(self, study: str) -> None:
        self._groups.pop(study, None)
        self._earlier.pop(study, None)
