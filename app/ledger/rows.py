"""Rows of the ledger as values: studies, trials, epochs, durable states, running trials.

A row is any object with attributes that are named like the columns. This module imports neither
SQLAlchemy nor any module that knows events, since the list of studies is read without those
(``listed``).
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
#: The errors that reading a damaged row can raise.
_UNREADABLE = (ValueError, TypeError, LookupError, AttributeError, RecursionError, UsageError)


def readable(read: Callable[[Any], _Value]) -> Callable[[Any], _Value]:
    """Decorate ``read`` to raise BackendError for a row that Penstock cannot have written."""

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
    """The present state of a study.

    ``scheduler.model.study`` explains the fields in more detail.
    """

    id: str
    name: str
    status: str
    #: The kind of training code: one of ``scheduler.model.study.CONTRACTS``.
    contract: str
    #: The name of the first objective.
    metric: str
    #: The direction of the first objective.
    direction: str
    #: The largest number of trials that the study will run (see ``endless``).
    n_trials: int
    #: The names of the study's strategy and sampler.
    strategy: str
    sampler: str
    #: The number of epochs of a complete training. It is None if the objective decides.
    max_epochs: int | None
    seed: int
    #: The times at which the study was submitted and ended, in seconds by the scheduler's clock.
    #: ``finished_at`` is None until the study is over.
    created_at: float
    finished_at: float | None
    #: The reason for the study's status, for the user. It may be empty.
    message: str
    #: The whole specification of the study (``codec.spec_to_json``).
    spec_json: str
    #: The content of the keys of trials' random numbers: one of ``scheduler.model.study.SEEDING``.
    seeding: str = "trial"
    #: The number of trials of each configuration.
    replicates: int = 1
    #: The number of results from other studies that the sampler was given.
    observations: int = 0
    #: The objectives after the first.
    further: tuple[Objective, ...] = ()
    #: The study's weight and priority in sharing devices with other studies
    #: (``spec.options.Share``).
    weight: float = 1.0
    priority: int = 0
    #: The environment (the Python and the system) in which the study's trainers run. An empty text
    #: means the environment of the workers.
    environment: str = ""
    #: The names that the user gave to the values of the objectives (``set_metric_names``). The
    #: tuple is empty if the user gave no names, or if ``Reader.with_names`` has not filled in the
    #: names yet.
    names: tuple[str, ...] = ()
    #: The study's use of devices. For a study without limits, it is known only once the study is
    #: over.
    spent: Spent = NOTHING_SPENT

    @property
    def reason(self) -> str:
        """``message`` with the numbers of trials in place of their ids."""
        return re.sub(rf"{re.escape(self.id)}-0*(\d+)", r"trial \1", self.message)

    @property
    def paused_itself(self) -> bool:
        """True if the study paused because trials in a part of its space failed alike.

        Such a study waits for its user.
        """
        return self.status == "paused" and is_in_part(self.message)

    @property
    def stands(self) -> bool:
        """True if the study makes no progress by itself, since it is over or has paused itself."""
        return self.finished_at is not None or self.paused_itself

    @property
    def response(self) -> float | None:
        """The number of seconds from the study's submission to its end.

        It is None until the study is over.
        """
        return None if self.finished_at is None else self.finished_at - self.created_at

    @property
    def plan(self) -> StrategySpec:
        """The strategy of the study with all its options."""
        return _strategy_of(json.loads(self.spec_json).get("strategy", {}))

    @property
    def endless(self) -> bool:
        """True if the study is not over and runs trials until it is stopped."""
        return self.n_trials >= ENDLESS and self.finished_at is None

    @property
    def objectives(self) -> tuple[Objective, ...]:
        """All objectives of the study in order, with the user's names if the user gave names."""
        unnamed = (Objective(self.metric, self.direction), *self.further)
        if len(self.names) != len(unnamed):
            return unnamed
        return tuple(
            Objective(n, each.direction) for n, each in zip(self.names, unnamed, strict=True)
        )

    @property
    def shown_metric(self) -> str:
        """The name of the first objective that people are shown.

        ``metric`` is the name in the reports.
        """
        return self.objectives[0].metric


@dataclass(frozen=True, slots=True)
class TrialRow:
    """The present state of a trial."""

    id: str
    #: The trial's number in its study, counted from 0.
    number: int
    #: One of the states in ``scheduler.model.trial``.
    state: str
    params: dict[str, Scalar]
    #: The number of accepted epochs.
    epoch: int
    #: The epoch that the trial is to reach before its strategy decides again.
    target: int
    #: The last value of the first objective. It is None if the trial has no result.
    value: float | None
    #: The device and the slot of the first member in the trial's newest attempt. A trial on several
    #: devices has several members.
    device: str
    slot: int
    #: The times at which the trial was proposed and ended, in seconds by the scheduler's clock.
    #: ``finished_at`` is None until the trial is over.
    created_at: float
    finished_at: float | None
    #: The kind, the message and the traceback of the failure of the trial's code. Each is None
    #: without a failure.
    failure_kind: str | None = None
    failure_message: str | None = None
    failure_traceback: str | None = None
    #: The last values of the objectives after the first.
    further: tuple[float, ...] = ()
    #: The amount by which each constraint is violated. An amount of 0 or less means that the
    #: constraint is satisfied.
    constraints: dict[str, float] = field(default_factory=dict)
    #: The id of the trial whose state this trial continues. It is None unless this trial was
    #: forked.
    origin_trial: str | None = None
    #: The epoch after which this trial continues the other trial's state. It is None unless this
    #: trial was forked.
    origin_epoch: int | None = None
    #: The id of the trial that this trial replaces in its population. It is empty for a branch, and
    #: None unless this trial was forked.
    replaces: str | None = None
    #: The number of another trial, if that number is in the keys of this trial's random numbers.
    #: Otherwise it is None.
    origin_keys: int | None = None
    #: The system configuration with which the trial runs.
    system: SystemConfig = ()
    #: The time at which the trial's newest attempt was sent, or None before the first attempt.
    dispatched_at: float | None = None

    @property
    def values(self) -> tuple[float, ...]:
        """The trial's values, one for each objective. It is empty if the trial has no result."""
        return () if self.value is None else (self.value, *self.further)

    @property
    def feasible(self) -> bool:
        """True if the trial satisfies every constraint."""
        return all(excess <= 0 for excess in self.constraints.values())

    def record(self) -> Trial:
        """Return the trial in the form of the engine, without its epochs and its durable states."""
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

    #: A number that grows in the order of acceptance, across all studies.
    rowid: int
    #: The id of the trial.
    trial: str
    #: The number of the epoch in its trial, from 1.
    epoch: int
    #: The value of the study's first objective.
    value: float
    #: All reported metrics, by name.
    metrics: dict[str, float]
    #: The hash of the trial's state after the epoch.
    state_hash: str
    #: The numeric signature of the training. Epochs with equal signatures have bitwise equal
    #: results if their code, configuration and seed are equal.
    signature: str
    #: The number of seconds that the epoch took.
    seconds: float
    #: The device and the slot of the first member.
    device: str
    slot: int
    #: The fence (number) of the attempt that trained the epoch.
    fence: int
    #: The time at which the epoch was accepted, in seconds by the scheduler's clock.
    at: float
    #: The device and the slot of each member.
    members: tuple[tuple[str, int], ...]
    #: The energy that the epoch took, in joules. It is None if the energy was not measured.
    joules: float | None = None
    #: The system configuration with which the epoch was trained.
    system: SystemConfig = ()
    #: The planned length of the segment and the reason for this length. Only the first epoch of a
    #: segment has a length; it is None for all other epochs.
    length: SegmentLength | None = None
    #: The time at which the epoch began, if the trial took turns with other trials in a lane.
    #: Otherwise it is None.
    began: float | None = None
    #: The id of the trial that trained the epoch, if the epoch was taken over and so took no time.
    #: Otherwise it is empty.
    taken_from: str = ""

    @property
    def begin(self) -> float:
        """The time at which the epoch began, in seconds by the scheduler's clock."""
        return self.at - self.seconds if self.began is None else self.began

    @property
    def width(self) -> int:
        """The number of devices that trained the epoch."""
        return max(1, len(self.members))

    @property
    def slots(self) -> tuple[tuple[str, int], ...]:
        """The device and the slot of each member.

        In an old ledger, an epoch on one device has no members. The result is then the epoch's own
        device and slot.
        """
        return self.members or ((self.device, self.slot),)


@dataclass(frozen=True, slots=True)
class DurableRow:
    """A state of a trial in the checkpoint store.

    ``at`` is the time at which the state became durable, in seconds.
    """

    trial: str
    epoch: int
    state_hash: str
    uri: str
    at: float


@dataclass(frozen=True, slots=True)
class Work:
    """A running trial: its present epoch, counted from 1, and the time of its newest segment.

    ``study`` is the name of the study. ``since`` is the time at which the newest segment was sent,
    in seconds by the scheduler's clock. It is None if an older version sent the segment.
    """

    study: str
    trial: str
    number: int
    epoch: int
    since: float | None


#: The values of those fields of a specification that its JSON leaves out.
_DEFAULTS = {
    each.name: each.default for each in fields(StudySpec) if each.default is not MISSING
} | {"strategy": {}}


@readable
def study_of(row: Any) -> StudyRow:
    """Return the study in a row of the table of studies.

    Only the fields that ``StudyRow`` needs are decoded, since decoding all fields would take longer
    than reading a list of studies. The digest of the row proves that the other fields are as
    written, too.
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
    """Return a study's use of devices from the JSON text in the table of studies."""
    if not text:
        return NOTHING_SPENT
    values = json.loads(text)
    return Spent(**values | {"reached": tuple(values["reached"])})


def _strategy_of(options: dict[str, Any]) -> StrategySpec:
    """Return the strategy with the given options, which come from JSON."""
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
    """Return the device and the slot of each member of a trial, given its row in the table."""
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
