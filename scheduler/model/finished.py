"""Studies that are over, in the form in which events bring them to the engine.

A study that another ledger ran to its end arrives in one event, as ``FinishedTrial`` values. The
engine keeps only that its id and name are taken, and passes the rest on to the ledger's readers. A
study that ended in this ledger and is extended continues from what the ledger has of it
(``FinishedStudy``). A study with a data token may take over epochs of ``EarlierTrial`` values.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Self

from ...profiling.knobs.knobs import SystemConfig
from .decisions import Member, Parent
from .study import NOTHING_SPENT, Metrics, Params, Spent, study_of_trial, trial_id
from .trial import AcceptedEpoch, Failure, Origin, Trial, TrialState


@dataclass(frozen=True, slots=True)
class FinishedTrial:
    """A trial as its own ledger had it at the end."""

    #: Its number in the study, from 0.
    number: int
    #: Its state at the end.
    state: TrialState
    #: Its configuration.
    params: Params
    #: The last accepted epoch.
    epoch: int
    #: The epoch that it was to reach.
    target: int
    #: The study's metric at the end; None if it had none.
    value: float | None
    #: Members of its last segment.
    members: tuple[Member, ...]
    #: When it was proposed (seconds).
    created_at: float
    #: When it reached its final state (seconds); None if it did not.
    finished_at: float | None
    #: Why it failed.
    failure: Failure | None = None
    #: Distributions (Optuna's JSON) of the parameters drawn while the objective ran, by name.
    drawn: tuple[tuple[str, str], ...] = ()
    #: Writings of its objective and its users (JSON, an update of ``tasks.objectives.history``).
    written: str = ""
    #: The accepted epochs.
    epochs: tuple[AcceptedEpoch, ...] = ()
    #: The states in its store, each with the time it was written (seconds).
    durables: tuple[tuple[Parent, float], ...] = ()
    #: The values of the study's other objectives.
    further: tuple[float, ...] = ()
    #: The amount by which each constraint is violated; it holds if that is 0 or less.
    constraints: Metrics = ()
    #: State that a forked trial continued from; None for any other trial.
    origin: Origin | None = None
    #: When its newest attempt was dispatched (seconds); None: not at all, or it is not known.
    dispatched_at: float | None = None

    def record(self, study: str) -> Trial:
        """Return this trial as a ``Trial`` of the study with the id ``study``."""
        return Trial(
            id=trial_id(study, self.number),
            study=study,
            number=self.number,
            params=self.params,
            created_at=self.created_at,
            state=self.state,
            target=self.target,
            epoch=self.epoch,
            value=self.value,
            members=self.members,
            failure=self.failure,
            finished_at=self.finished_at,
            further=self.further,
            constraints=self.constraints,
            origin=self.origin,
            dispatched_at=self.dispatched_at,
        )


@dataclass(slots=True)
class PastTrial(Trial):
    """A trial of a study of this ledger that was over, with what is known of its epochs."""

    #: The reported metrics, by epoch; empty where nothing needs them.
    reports: dict[int, Metrics] = field(default_factory=dict)
    #: The trials that trained epochs which it took over, by epoch.
    taken: dict[int, str] = field(default_factory=dict)
    #: The trainers of its epochs, each by the first of those in a row. Ledgers leave it empty.
    holders: dict[int, str] = field(default_factory=dict)

    @classmethod
    def of(cls, trial: Trial, epochs: Iterable[AcceptedEpoch] = ()) -> Self:
        """Return ``trial`` as a past trial, with the reports of its ``epochs``."""
        epochs = tuple(epochs)
        return cls(
            **{each.name: getattr(trial, each.name) for each in fields(Trial)},
            reports={each.epoch: each.metrics for each in epochs},
            taken={each.epoch: each.taken_from for each in epochs if each.taken_from},
        )

    def record(self) -> Trial:
        """Return a record of the trial to work with, since events must not change."""
        own = {each.name: getattr(self, each.name) for each in fields(Trial)}
        own |= {"values": dict(self.values), "hashes": dict(self.hashes), "story": []}
        return Trial(**own)


@dataclass(frozen=True, slots=True)
class FinishedStudy:
    """A study of this ledger that was over.

    ``created_at`` is when it was created (seconds); ``trials`` are in the order of their numbers.
    """

    created_at: float
    trials: tuple[PastTrial, ...]
    spent: Spent = NOTHING_SPENT


@dataclass(frozen=True, slots=True)
class EarlierTrial:
    """A trial of a study that is over, whose epochs trials of other studies may take over.

    Fields have the names and meanings of ``PastTrial``'s.
    """

    id: str
    params: Params
    #: Number of the replicate of its configuration that it is.
    replicate: int | None
    signature: str
    trained_with: SystemConfig
    members: tuple[Member, ...]
    reports: dict[int, Metrics]
    hashes: dict[int, str]
    taken: dict[int, str]
    parents: tuple[Parent, ...]

    @property
    def study(self) -> str:
        """The id of its study."""
        return study_of_trial(self.id)
