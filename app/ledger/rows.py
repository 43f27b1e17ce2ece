"""Rows of the ledger as values: studies, trials, epochs, durable states, running trials.

A row is any object with attributes named like the columns. This module imports neither SQLAlchemy
nor any module that knows events: the list of studies is read without these (``listed``).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

from ...base.errors import BackendError, UsageError
from ...profiling.costs.segment_costs import SegmentStart
from ...scheduler.model.early_failure import is_in_part
from ...scheduler.model.segment_length import LengthReason, SegmentLength
from ...scheduler.model.study import (
    ENDLESS,
    NOTHING_SPENT,
    Objective,
    Scalar,
    Spent,
    StrategySpec,
    StudySpec,
    SuperNet,
    study_of_trial,
)
from ...scheduler.model.trial import Origin, Trial, TrialState

if TYPE_CHECKING:
    from ...profiling.knobs.knobs import SystemConfig
    from ...scheduler.state.state import DeviceRecord

_Value = TypeVar("_Value")
#: Errors that reading a damaged row can raise.
_UNREADABLE = (ValueError, TypeError, LookupError, AttributeError, RecursionError, UsageError)


def readable(read: Callable[[Any], _Value]) -> Callable[[Any], _Value]:
    """Decorate ``read`` to raise ``BackendError`` for a row that Penstock cannot have written."""

    @wraps(read)
    def tried(row: Any) -> _Value:
        try:
            return read(row)
        except _UNREADABLE as error:
            excerpt = str(row._asdict())[:200]
            raise BackendError(
                f"the ledger is damaged, a row cannot be read ({error}): {excerpt}"
            ) from error

    return tried


@dataclass(frozen=True, slots=True)
class StudyRow:
    """The present state of a study; ``scheduler.model.study`` says more about the fields."""

    id: str
    name: str
    status: str
    #: The kind of training code: one of ``scheduler.model.study.CONTRACTS``.
    contract: str
    #: The name of the first objective.
    metric: str
    #: The direction of the first objective.
    direction: str
    #: The number of trials that the study may have (see ``endless``).
    n_trials: int
    #: The names of its strategy and its sampler.
    strategy: str
    sampler: str
    #: The epochs of a whole training; None if the objective decides.
    max_epochs: int | None
    seed: int
    #: When the study was submitted and ended, in seconds of the scheduler's clock; ``finished_at``
    #: is None until it is over.
    created_at: float
    finished_at: float | None
    #: The reason, for the user, of the study's status; may be empty.
    message: str
    #: The whole specification (``codec.spec_to_json``).
    spec_json: str
    #: The owner of its trials' random numbers: one of ``scheduler.model.study.SEEDING``.
    seeding: str = "trial"
    #: The number of trials that each configuration has.
    replicates: int = 1
    #: The number of other studies' results that the study's sampler was given.
    observations: int = 0
    #: The objectives after the first.
    further: tuple[Objective, ...] = ()
    #: The share of the devices among studies of equal priority (``spec.options.Share``).
    weight: float = 1.0
    priority: int = 0
    #: The environment in which the study's trainers run; empty for the workers' environment.
    environment: str = ""
    #: The user's names for the objectives' values (``set_metric_names``). Empty if the user gave
    #: none, or before ``Reader.with_names`` has filled it in.
    names: tuple[str, ...] = ()
    #: The study's use of devices; for a study without limits, known once it is over.
    spent: Spent = NOTHING_SPENT

    @property
    def reason(self) -> str:
        """``message`` with the trials' numbers in place of their ids."""
        return re.sub(rf"{re.escape(self.id)}-0*(\d+)", r"trial \1", self.message)

    @property
    def paused_itself(self) -> bool:
        """True if the study waits for its user, as trials in a part of its space failed alike."""
        return self.status == "paused" and is_in_part(self.message)

    @property
    def stands(self) -> bool:
        """True if the study makes no progress by itself: it is over, or has paused itself."""
        return self.finished_at is not None or self.paused_itself

    @property
    def response(self) -> float | None:
        """Seconds from the study's submission to its end; None until it is over."""
        return None if self.finished_at is None else self.finished_at - self.created_at

    @property
    def plan(self) -> StrategySpec:
        """The strategy of the study with all options."""
        return _strategy_of(json.loads(self.spec_json).get("strategy", {}))

    @property
    def endless(self) -> bool:
        """True if the study runs an open number of trials, until it is stopped."""
        return self.n_trials >= ENDLESS and self.finished_at is None

    @property
    def objectives(self) -> tuple[Objective, ...]:
        """All objectives of the study in order, with the user's names if given."""
        unnamed = (Objective(self.metric, self.direction), *self.further)
        if len(self.names) != len(unnamed):
            return unnamed
        return tuple(
            Objective(n, each.direction) for n, each in zip(self.names, unnamed, strict=True)
        )

    @property
    def shown_metric(self) -> str:
        """The name of the first objective as shown to people; ``metric`` is its metric's name."""
        return self.objectives[0].metric


@dataclass(frozen=True, slots=True)
class TrialRow:
    """The present state of a trial."""

    id: str
    #: The trial's number in its study, from 0.
    number: int
    #: One of the states in ``scheduler.model.trial``.
    state: str
    params: dict[str, Scalar]
    #: The number of accepted epochs.
    epoch: int
    #: The epoch that the trial is to reach.
    target: int
    #: The metric of the last accepted epoch; None without a result.
    value: float | None
    #: Device and slot of the first member of the trial's newest attempt.
    device: str
    slot: int
    #: When the trial was proposed and ended, in seconds of the scheduler's clock; ``finished_at``
    #: is None until it is over.
    created_at: float
    finished_at: float | None
    #: Kind, message and traceback of the failure of the trial's code; None without a failure.
    failure_kind: str | None = None
    failure_message: str | None = None
    failure_traceback: str | None = None
    #: The last values of the study's further objectives.
    further: tuple[float, ...] = ()
    #: The amount by which each constraint is violated; 0 or less if it is satisfied.
    constraints: dict[str, float] = field(default_factory=dict)
    #: The id of the trial whose state this trial continues; None unless it was forked.
    origin_trial: str | None = None
    #: The epoch after which it continues that state; None unless it was forked.
    origin_epoch: int | None = None
    #: The id of the trial that this trial replaces; empty for a branch, None unless it was forked.
    replaces: str | None = None
    #: The number in the keys of the trial's random numbers, if that is another trial's; else None.
    origin_keys: int | None = None
    #: The system configuration with which the trial runs.
    system: SystemConfig = ()
    #: When the trial's newest attempt was dispatched; None before the first.
    dispatched_at: float | None = None

    @property
    def values(self) -> tuple[float, ...]:
        """The trial's values, one per objective; empty without a result."""
        return () if self.value is None else (self.value, *self.further)

    @property
    def feasible(self) -> bool:
        """True if the trial satisfies every constraint."""
        return all(excess <= 0 for excess in self.constraints.values())

    def record(self) -> Trial:
        """Return the trial in the engine's form, without its epochs and its states."""
        origin = None
        if self.origin_trial is not None:
            epoch, replaces = self.origin_epoch or 0, self.replaces or ""
            origin = Origin(self.origin_trial, epoch, replaces, self.origin_keys)
        return Trial(
            id=self.id,
            study=study_of_trial(self.id),
            number=self.number,
            params=tuple(self.params.items()),
            created_at=self.created_at,
            state=TrialState(self.state),
            target=self.target,
            epoch=self.epoch,
            origin=origin,
        )


@dataclass(frozen=True, slots=True)
class EpochRow:
    """An accepted epoch."""

    #: A number that grows in the order of acceptance, over all studies.
    rowid: int
    #: The trial's id.
    trial: str
    #: The epoch's number in the trial, from 1.
    epoch: int
    #: The value of the study's first metric.
    value: float
    #: All reported metrics, by name.
    metrics: dict[str, float]
    #: The hash of the trial's state after the epoch.
    state_hash: str
    #: The numeric signature of its training: equal signatures mean bitwise equal results.
    signature: str
    #: The seconds that the epoch took.
    seconds: float
    #: Device and slot of the first member.
    device: str
    slot: int
    #: The fence (number) of the attempt that trained the epoch.
    fence: int
    #: When the epoch was accepted, in seconds of the scheduler's clock.
    at: float
    #: Device and slot of each member.
    members: tuple[tuple[str, int], ...]
    #: The energy that the epoch took; None if it was not measured.
    joules: float | None = None
    #: The system configuration with which the epoch was trained.
    system: SystemConfig = ()
    #: The planned length of the segment and its reason, in a segment's first epoch; else None.
    length: SegmentLength | None = None
    #: When the epoch began, if its trial shared a lane's time by turns; else None.
    began: float | None = None
    #: The trial that trained the epoch, if it was taken over and so took no time; else empty.
    taken_from: str = ""

    @property
    def begin(self) -> float:
        """When the epoch began, in seconds of the scheduler's clock."""
        return self.at - self.seconds if self.began is None else self.began

    @property
    def width(self) -> int:
        """The number of devices that trained the epoch."""
        return max(1, len(self.members))

    @property
    def slots(self) -> tuple[tuple[str, int], ...]:
        """Device and slot of each member. An old ledger lists none for an epoch on one device."""
        return self.members or ((self.device, self.slot),)


@dataclass(frozen=True, slots=True)
class DurableRow:
    """A state of a trial in the checkpoint store; ``at`` is when it became durable (seconds)."""

    trial: str
    epoch: int
    state_hash: str
    uri: str
    at: float


@dataclass(frozen=True, slots=True)
class Work:
    """A running trial: its present epoch (from 1), and when its newest segment began (seconds).

    ``since`` is None if an older version sent the segment.
    """

    study: str
    trial: str
    number: int
    epoch: int
    since: float | None


#: Values of a specification's fields that are not given.
_DEFAULTS = {
    each.name: each.default for each in fields(StudySpec) if each.default is not MISSING
} | {"strategy": {}}


@readable
def study_of(row: Any) -> StudyRow:
    """Return the study in a row of the table of studies.

    Only these fields of the specification are decoded: decoding all would take longer than reading
    a list of studies. The row's digest proves that the other fields are as written, too.
    """
    spec = _DEFAULTS | json.loads(row.spec)
    if unknown := spec.keys() - StudySpec.__dataclass_fields__.keys():
        raise UsageError(f"a malformed study is refused: {min(unknown)} is not known")
    plan = _strategy_of(spec["strategy"])
    return StudyRow(
        id=row.id,
        name=row.name,
        status=row.status,
        contract=spec["contract"],
        weight=spec["weight"],
        priority=spec["priority"],
        metric=spec["metric"],
        direction=spec["direction"],
        n_trials=spec["n_trials"],
        strategy=plan.name,
        sampler=spec["sampler"],
        max_epochs=plan.max_epochs,
        seed=spec["seed"],
        seeding=spec["seeding"],
        replicates=spec["replicates"],
        created_at=row.created_at,
        finished_at=row.finished_at,
        message=row.message,
        spec_json=row.spec,
        further=tuple(Objective(**each) for each in spec["further"]),
        observations=len(spec["observations"]),
        environment=spec["environment"],
        spent=spent_of(row.spent),
    )


def spent_of(text: str) -> Spent:
    """Return a study's use of devices; ``text`` is from the table of studies."""
    if not text:
        return NOTHING_SPENT
    values = json.loads(text)
    return Spent(**values | {"reached": tuple(values["reached"])})


def _strategy_of(options: dict[str, Any]) -> StrategySpec:
    """Return the strategy with these options, which come from JSON."""
    explore, supernet = options.get("explore"), options.get("supernet")
    values: dict[str, Any] = {
        "explore": None if explore is None else tuple(explore),
        "supernet": None if supernet is None else SuperNet(**supernet),
    }
    return StrategySpec(**options | values)


@readable
def trial_of(row: Any) -> TrialRow:
    """Return the trial in a row of the table of trials."""
    fields = {name: getattr(row, name) for name in TrialRow.__slots__}
    return TrialRow(
        **fields
        | {
            "params": json.loads(row.params),
            "further": tuple(json.loads(row.further)),
            "constraints": json.loads(row.constraints),
            "system": _system(row),
        }
    )


@readable
def epoch_of(row: Any) -> EpochRow:
    """Return the epoch in a row of the table of epochs."""
    fields = {name: getattr(row, name) for name in EpochRow.__slots__ if name != "rowid"}
    return EpochRow(
        rowid=row.id,
        **fields
        | {
            "value": math.nan if row.value is None else row.value,
            "metrics": json.loads(row.metrics),
            "members": tuple((device, slot) for device, slot in json.loads(row.members)),
            "system": _system(row),
            "length": _length(row),
        },
    )


@readable
def slots_of(row: Any) -> list[tuple[str, int]]:
    """Return device and slot of each member of the trial in a row of the table of trials."""
    return [(str(device), int(slot)) for device, slot in json.loads(row.members)]


def _system(row: Any) -> SystemConfig:
    return tuple((name, value) for name, value in json.loads(row.system))


def _length(row: Any) -> SegmentLength | None:
    if not row.length:
        return None
    fields = json.loads(row.length)
    reason, tier = LengthReason(fields["reason"]), SegmentStart(fields["tier"])
    return SegmentLength(**fields | {"reason": reason, "tier": tier})


def durable_of(row: Any) -> DurableRow:
    """Return the state in a row of the table of durable states."""
    return DurableRow(row.trial, row.epoch, row.state_hash, row.uri, row.at)


@readable
def device_of(row: Any) -> DeviceRecord:
    """Return the device in a row of the table of devices."""
    # Imported here because they import NumPy and more, which readers of studies do not need.
    from ...profiling.devices.device import Device
    from ...scheduler.state.state import DeviceRecord

    device = Device(
        name=row.name,
        node=row.node,
        kind=row.kind,
        cores=tuple(json.loads(row.cores)),
        memory=row.memory,
        slots=row.slots,
        uuid=row.uuid,
        model=row.model,
        unmetered=row.unmetered,
        seats=row.seats,
    )
    return DeviceRecord(device, row.incarnation, row.state, row.at, row.reason)
