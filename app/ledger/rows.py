"""Rows of the ledger as values: studies, trials, epochs, durable states, what is at work."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, TypeVar

from sqlalchemy import Row

from ...profiling.base.errors import BackendError, UsageError
from ...profiling.devices.device import Device
from ...profiling.knobs.knobs import SystemConfig
from ...scheduler.model.study import Objective, Scalar
from ...scheduler.state.state import DeviceRecord
from . import codec

_Value = TypeVar("_Value")
#: What reading a row raises in which something else stands than was written.
_UNREADABLE = (ValueError, TypeError, LookupError, AttributeError, RecursionError, UsageError)


def readable(read: Callable[[Row[Any]], _Value]) -> Callable[[Row[Any]], _Value]:
    """``read``, which raises ``BackendError`` for a row that nobody of ours has written."""

    @wraps(read)
    def tried(row: Row[Any]) -> _Value:
        try:
            return read(row)
        except _UNREADABLE as error:
            shown = str(dict(row._mapping))[:200]
            raise BackendError(
                f"the ledger is damaged, a row cannot be read ({error}): {shown}"
            ) from error

    return tried


@dataclass(frozen=True, slots=True)
class StudyRow:
    """A study as it stands; see ``scheduler.model.study`` for what the fields mean.

    ``observations`` is how many results of other studies it was warmed up with.
    """

    id: str
    name: str
    status: str
    contract: str
    metric: str
    direction: str
    n_trials: int
    strategy: str
    sampler: str
    max_epochs: int | None
    seed: int
    created_at: float
    finished_at: float | None
    message: str
    spec_json: str
    observations: int = 0
    further: tuple[Objective, ...] = ()
    weight: float = 1.0
    priority: int = 0

    @property
    def response(self) -> float | None:
        """Seconds from its submission to its end; None before that."""
        return None if self.finished_at is None else self.finished_at - self.created_at

    @property
    def objectives(self) -> tuple[Objective, ...]:
        """All of them, the first one first."""
        return (Objective(self.metric, self.direction), *self.further)


@dataclass(frozen=True, slots=True)
class TrialRow:
    """A trial as it stands. ``epoch`` counts accepted epochs; ``value`` is the last one's metric.

    The three ``failure`` fields are None unless its code failed. ``further`` are the last values
    of the study's other objectives, ``constraints`` by how much each is violated (0 or less: not).
    The three of its origin are None unless it was forked: from that trial's state (its id), after
    that epoch, in that trial's place. ``system`` is the system configuration that it runs with.
    """

    id: str
    number: int
    state: str
    params: dict[str, Scalar]
    epoch: int
    target: int
    value: float | None
    device: str
    slot: int
    created_at: float
    finished_at: float | None
    failure_kind: str | None = None
    failure_message: str | None = None
    failure_traceback: str | None = None
    further: tuple[float, ...] = ()
    constraints: dict[str, float] = field(default_factory=dict)
    origin_trial: str | None = None
    origin_epoch: int | None = None
    replaces: str | None = None
    system: SystemConfig = ()

    @property
    def values(self) -> tuple[float, ...]:
        """One an objective; none where it has no result."""
        return () if self.value is None else (self.value, *self.further)

    @property
    def feasible(self) -> bool:
        """Whether it violates no constraint."""
        return all(excess <= 0 for excess in self.constraints.values())


@dataclass(frozen=True, slots=True)
class EpochRow:
    """An accepted epoch. ``rowid`` grows in the order of acceptance, over all studies.

    ``device`` and ``slot`` are the first member's; ``members`` are all of them. ``joules`` are None
    where they were not measured. ``system`` is the system configuration that it was trained with.
    """

    rowid: int
    trial: str
    epoch: int
    value: float
    metrics: dict[str, float]
    state_hash: str
    signature: str
    seconds: float
    device: str
    slot: int
    fence: int
    at: float
    members: tuple[tuple[str, int], ...]
    joules: float | None = None
    system: SystemConfig = ()

    @property
    def width(self) -> int:
        """On how many devices it was trained."""
        return max(1, len(self.members))

    @property
    def places(self) -> tuple[tuple[str, int], ...]:
        """Device and slot of each member; an old ledger names none where there was only one."""
        return self.members or ((self.device, self.slot),)


@dataclass(frozen=True, slots=True)
class DurableRow:
    """A state of a trial in the checkpoint store, and since when (seconds)."""

    trial: str
    epoch: int
    state_hash: str
    uri: str
    at: float


@dataclass(frozen=True, slots=True)
class Work:
    """A trial at work: in which epoch (1-based), and since when its newest segment (seconds).

    ``since`` is None where an older version sent the segment.
    """

    study: str
    trial: str
    number: int
    epoch: int
    since: float | None


@readable
def study_of(row: Row[Any]) -> StudyRow:
    """A row of the table of studies."""
    spec = codec.spec_from_json(row.spec)
    return StudyRow(
        id=row.id,
        name=row.name,
        status=row.status,
        contract=spec.contract,
        weight=spec.weight,
        priority=spec.priority,
        metric=spec.metric,
        direction=spec.direction,
        n_trials=spec.n_trials,
        strategy=spec.strategy.name,
        sampler=spec.sampler,
        max_epochs=spec.strategy.max_epochs,
        seed=spec.seed,
        created_at=row.created_at,
        finished_at=row.finished_at,
        message=row.message,
        spec_json=row.spec,
        further=spec.further,
        observations=len(spec.observations),
    )


@readable
def trial_of(row: Row[Any]) -> TrialRow:
    """A row of the table of trials."""
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
def epoch_of(row: Row[Any]) -> EpochRow:
    """A row of the table of epochs."""
    fields = {name: getattr(row, name) for name in EpochRow.__slots__ if name != "rowid"}
    return EpochRow(
        rowid=row.id,
        **fields
        | {
            "value": math.nan if row.value is None else row.value,
            "metrics": json.loads(row.metrics),
            "members": tuple((device, slot) for device, slot in json.loads(row.members)),
            "system": _system(row),
        },
    )


@readable
def places_of(row: Row[Any]) -> list[tuple[str, int]]:
    """Where a trial in a row of that table is at work: (device, slot)."""
    return [(str(device), int(slot)) for device, slot in json.loads(row.members)]


def _system(row: Row[Any]) -> SystemConfig:
    return tuple((name, value) for name, value in json.loads(row.system))


def durable_of(row: Row[Any]) -> DurableRow:
    """A row of the table of durable states."""
    return DurableRow(row.trial, row.epoch, row.state_hash, row.uri, row.at)


@readable
def device_of(row: Row[Any]) -> DeviceRecord:
    """A row of the table of devices."""
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
    )
    return DeviceRecord(device, row.incarnation, row.state, row.at, row.reason)
