"""State of studies whose trials have epochs in common, and an index of these trials.

The index finds trials of a study whose bits are equal up to an epoch, by the keys of their links.
It is not stored, since it follows from the parameters of the trials.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from ...scheduler.model.finished import EarlierTrial
from ...scheduler.model.study import Metrics
from ...scheduler.model.trial import Trial
from ...scheduler.state.core import Core
from ...scheduler.state.state import EngineState, StudyState
from .chain import Chain, Link, chain_of, is_checked, link_at

#: The name of the extension and of its state.
NAME = "prefixes"


@dataclass(slots=True)
class OfTrial:
    """The accepted epochs of a trial, with the facts that others need to take them over."""

    #: The reported metrics, by epoch.
    reports: dict[int, Metrics] = field(default_factory=dict)
    #: For each epoch that this trial took over, the id of the trial that trained it.
    taken: dict[int, str] = field(default_factory=dict)
    #: The trainers of this trial's epochs, by epoch in ascending order. Consecutive epochs of one
    #: trainer have one entry, under the first of them.
    holders: dict[int, str] = field(default_factory=dict)


@dataclass(slots=True)
class OfStudy:
    """State of a study that has not ended."""

    #: Waiting trials whose next epoch another trial trains, in the order of arrival.
    companions: list[str] = field(default_factory=list)
    #: True if no trial takes over epochs any more, because bits were seen to differ.
    apart: bool = False
    #: Trials of finished studies whose epochs this study's trials may take over (``between``).
    earlier: list[EarlierTrial] = field(default_factory=list)
    #: True if no epochs of other studies are taken over any more, because bits differed.
    apart_from_others: bool = False
    #: The facts about this study's trials with an accepted epoch, by trial id.
    trials: dict[str, OfTrial] = field(default_factory=dict)


@dataclass(slots=True)
class State:
    """State of the extension in ``EngineState.ext``."""

    version: int = 1
    #: The state of each study that needs the extension, by id, in the order in which they started.
    studies: dict[str, OfStudy] = field(default_factory=dict)


_NOTHING, _NO_TRIAL = State(), OfTrial()

#: A trial whose epochs are taken over: of a finished study, or of a running one.
Trained = EarlierTrial | Trial


def known_of(state: EngineState) -> State:
    """Return the extension's state, which the caller only reads."""
    knowledge: State = state.ext.get(NAME, _NOTHING)
    return knowledge


def epochs_of(state: EngineState, trial: Trained) -> EarlierTrial | OfTrial:
    """Return the facts about a trial's epochs, which the caller only reads."""
    if isinstance(trial, EarlierTrial):
        return trial
    return known_of(state).studies[trial.study].trials.get(trial.id, _NO_TRIAL)


def note_trial(state: EngineState, trial: Trial) -> OfTrial:
    """Return the record of a trial's epochs for the caller to change; create it if missing."""
    return known_of(state).studies[trial.study].trials.setdefault(trial.id, OfTrial())


def forget_study(state: EngineState, study: str) -> None:
    """Drop the state of this study. With the last study, drop the extension's whole state."""
    knowledge = known_of(state)
    if knowledge.studies.pop(study, None) is not None and not knowledge.studies:
        del state.ext[NAME]


@dataclass(slots=True)
class Index:
    """An index of the chains of one study's trials."""

    chains: dict[str, Chain] = field(default_factory=dict)
    #: For each link's key, the trials with that link, and the last epoch of the link in each trial.
    by_key: defaultdict[str, dict[str, int | None]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    #: The trials that take over no epochs, as a check.
    checked: set[str] = field(default_factory=set)

    def add(self, name: str, chain: Chain) -> None:
        self.chains[name] = chain
        for link in chain:
            self.by_key[link.key][name] = link.until

    def alike(self, link: Link, epoch: int) -> Iterator[str]:
        """Yield the trials with the same bits after ``epoch``, for which ``link`` applies."""
        for name, until in self.by_key.get(link.key, {}).items():
            if until is None or epoch <= until:
                yield name


class Indices:
    """The indices of the studies that have not ended."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._state = core.state
        self._indices: dict[str, Index] = {}

    def of(self, study: StudyState) -> Index:
        """Return the study's index, updated for all of its trials."""
        name = study.spec.id
        if name in self._core.reparametrised:
            self._core.reparametrised.discard(name)
            self.forget_study(name)
        index = self._indices.get(name)
        if index is None:
            index = self._indices[name] = Index()
        for position in range(len(index.chains), len(study.trials)):
            trial = self._state.trials[study.trials[position]]
            index.add(trial.id, chain_of(study.spec, trial))
            if is_checked(study.spec, trial):
                index.checked.add(trial.id)
        return index

    def alike(self, study: StudyState, trial: Trial, epoch: int) -> Iterator[Trial]:
        """Yield the other trials with the same bits as ``trial`` after ``epoch``, by number."""
        index = self.of(study)
        link = link_at(index.chains[trial.id], epoch)
        for name in () if link is None else index.alike(link, epoch):
            if name != trial.id:
                yield self._state.trials[name]

    def forget_study(self, study: str) -> None:
        self._indices.pop(study, None)
