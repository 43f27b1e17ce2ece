"""Studies that have ended, in the form in which events bring them to the engine.

A study that ran to its end under another ledger is imported by one event, as ``FinishedTrial``
values. The engine keeps only the id and the name, so that no other study takes them, and passes the
rest on to the ledger's readers. A study that ended in this ledger and is extended or reopened
continues from the ledger's record of it (``FinishedStudy``). Trials of a study with a data token
may take over epochs of earlier studies (``EarlierTrial``).
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
    """The final record of a trial of an imported study, as the ledger that ran it exported it."""

    #: Its number in the study, from 0.
    number: int
    #: Its state at the end.
    state: TrialState
    #: Its configuration.
    params: Params
    #: The last accepted epoch.
    epoch: int
    #: The epoch that it was to reach (its target).
    target: int
    #: The study's metric at the end; None if it had none.
    value: float | None
    #: The members of its last segment.
    members: tuple[Member, ...]
    #: Time at which it was proposed (seconds).
    created_at: float
    #: Time at which it reached its final state (seconds); None if it did not.
    finished_at: float | None
    #: The failure that ended it; None if it did not fail.
    failure: Failure | None = None
    #: Distributions (Optuna's JSON) of the parameters drawn while the objective ran, by name.
    drawn: tuple[tuple[str, str], ...] = ()
    #: Parameters, values and attributes that its objective and its users wrote (JSON, an update of
    #: ``tasks.objectives.history``).
    written: str = ""
    #: The accepted epochs.
    epochs: tuple[AcceptedEpoch, ...] = ()
    #: The trial's durable states, each with the time when it was written (seconds).
    durables: tuple[tuple[Parent, float], ...] = ()
    #: The values of the study's other objectives.
    further: tuple[float, ...] = ()
    #: The amount by which the trial violates each constraint; 0 or less if the constraint holds.
    constraints: Metrics = ()
    #: The state from which a forked trial continued; None for any other trial.
    origin: Origin | None = None
    #: Time at which the newest attempt was dispatched (seconds); None if there was none, or it is
    #: not known.
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
    """A trial of a study of this ledger that has ended, with the known results of its epochs."""

    #: The reported metrics, by epoch; empty if nothing needs them.
    reports: dict[int, Metrics] = field(default_factory=dict)
    #: The trials from which this trial took over epochs, by epoch.
    taken: dict[int, str] = field(default_factory=dict)
    #: The trainers of the trial's epochs. Each trainer is listed under the first of the consecutive
    #: epochs that it trained. A record from a ledger lists none.
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
        """Return a copy of the trial's record that may be changed, as the event must not be."""
        own = {each.name: getattr(self, each.name) for each in fields(Trial)}
        own |= {"values": dict(self.values), "hashes": dict(self.hashes), "story": []}
        return Trial(**own)


@dataclass(frozen=True, slots=True)
class FinishedStudy:
    """A study of this ledger that has ended.

    ``created_at`` is the time of its submission (seconds, the runner's clock), and ``trials`` are
    in the order of their numbers.
    """

    created_at: float
    trials: tuple[PastTrial, ...]
    spent: Spent = NOTHING_SPENT


@dataclass(frozen=True, slots=True)
class EarlierTrial:
    """A trial of a study that has ended. Trials of other studies may take over its epochs.

    The fields have the same meanings as the fields of ``PastTrial`` with these names.
    """

    id: str
    params: Params
    #: The trial's replicate number (``study.replicate_of``); None if the keys of its random numbers
    #: hold its own number.
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
