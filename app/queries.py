"""What readers see of the ledger: studies, trials, epochs, devices, and the story of a trial.

Readers open the ledger read-only while the scheduler writes it, and take no lock that it would wait
for. Each call sees the ledger as of one moment. ``BackendError`` where there is none yet.
"""

from __future__ import annotations

import json
import math
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from sqlalchemy import Row, Select, func, select

from ..profiling.devices import Device
from ..profiling.errors import BackendError, UsageError
from ..profiling.history import HistoryEntry
from ..scheduler.events import Event, PolicyFailed, StudyImported, Suggested
from ..scheduler.state import DeviceRecord
from ..scheduler.study import Objective, Scalar
from ..scheduler.trial import TrialState
from . import codec
from .database import database_at, revision
from .event_log import EventLog
from .history import read_history
from .tables import DEVICE, DURABLE, EPOCH, EVENT, HEAD, STUDY, TRIAL

#: So many names of studies are listed where one is not found.
NAMED = 5
#: So many values are put in one query.
AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class StudyRow:
    """A study as it stands; see ``scheduler.study`` for what the fields mean.

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
    that epoch, in that trial's place.
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

    ``device`` and ``slot`` are the first member's; ``members`` are all of them.
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

    @property
    def width(self) -> int:
        """On how many devices it was trained."""
        return max(1, len(self.members))


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


class Reader(EventLog):
    """The ledger at ``url``, read-only. It may appear, grow and vanish between two calls."""

    def __init__(self, url: str) -> None:
        self._database = database_at(url)
        self._engine = self._database.reader()
        weakref.finalize(self, self._engine.dispose)

    def is_empty(self) -> bool:
        """Whether no scheduler has opened this ledger so far."""
        if self._database.is_absent():
            return True
        with self._database.answering(), self._engine.connect() as connection:
            return revision(connection) is None

    def studies(self) -> list[StudyRow]:
        """All studies, oldest first."""
        rows = self._rows(select(STUDY).order_by(STUDY.c.created_at, STUDY.c.id))
        return [_study(row) for row in rows]

    def study(self, name_or_id: str) -> StudyRow:
        """One study, the newest of that name. Raises ``UsageError`` with near names if absent."""
        newest_first = STUDY.c.created_at.desc(), STUDY.c.id.desc()
        given = codec.storable(name_or_id)
        known = (STUDY.c.id == given) | (STUDY.c.name == given)
        for row in self._rows(select(STUDY).where(known).order_by(*newest_first).limit(1)):
            return _study(row)
        names = self._rows(select(STUDY.c.name).order_by(*newest_first))
        raise UsageError(_no_study(name_or_id, [row.name for row in names]))

    def statuses(self) -> dict[str, int]:
        """How many studies there are, by their status."""
        query = select(STUDY.c.status, func.count().label("n")).group_by(STUDY.c.status)
        return {row.status: row.n for row in self._rows(query)}

    def responses(self) -> tuple[int, float]:
        """How many studies are over, and the seconds from submission to end of all of them."""
        took = STUDY.c.finished_at - STUDY.c.created_at  # NULL before the end, which neither counts
        query: Any = select(func.count(took).label("n"), func.sum(took).label("seconds"))
        [row] = self._rows(query)
        return row.n, row.seconds or 0.0

    def trials(self, study_id: str) -> list[TrialRow]:
        """The trials of a study by number."""
        query = select(TRIAL).where(TRIAL.c.study == study_id).order_by(TRIAL.c.number)
        return [_trial(row) for row in self._rows(query)]

    def running(self) -> dict[tuple[str, int], Work]:
        """What is at work, by (device, slot)."""
        query = (
            select(TRIAL, STUDY.c.name)
            .join(STUDY, STUDY.c.id == TRIAL.c.study)
            .where(TRIAL.c.state == str(TrialState.RUNNING), STUDY.c.finished_at.is_(None))
        )
        return {
            (device, slot): Work(row.name, row.id, row.number, row.epoch + 1, row.dispatched_at)
            for row in self._rows(query)
            for device, slot in json.loads(row.members)
        }

    def epochs(self, study_id: str, after_rowid: int = 0) -> list[EpochRow]:
        """The accepted epochs of a study with a ``rowid`` above ``after_rowid``, in its order."""
        query = (
            select(EPOCH)
            .join(TRIAL, TRIAL.c.id == EPOCH.c.trial)
            .where(TRIAL.c.study == study_id, EPOCH.c.id > after_rowid)
            .order_by(EPOCH.c.id)
        )
        return [_epoch(row) for row in self._rows(query)]

    def durables(self, study_id: str) -> list[DurableRow]:
        """The durable states of a study by trial and epoch."""
        query = (
            select(DURABLE)
            .join(TRIAL, TRIAL.c.id == DURABLE.c.trial)
            .where(TRIAL.c.study == study_id)
            .order_by(TRIAL.c.number, DURABLE.c.epoch)
        )
        return [DurableRow(**row._mapping) for row in self._rows(query)]

    def imported(self, study_id: str) -> tuple[int, StudyImported] | None:
        """The event that brought a study here from an export, and its number; else None."""
        query = select(EVENT.c.seq, EVENT.c.kind, EVENT.c.body).where(
            EVENT.c.study == study_id, EVENT.c.kind == StudyImported.__name__
        )
        for row in self._rows(query):
            event = codec.decode(row.kind, row.body)
            assert isinstance(event, StudyImported)
            return row.seq, event
        return None

    def events(self, trial_id: str) -> list[tuple[int, Event]]:
        """What happened to a trial: (sequence number, event), in order."""
        query = select(EVENT.c.seq, EVENT.c.kind, EVENT.c.body).where(EVENT.c.trial == trial_id)
        rows = self._rows(query.order_by(EVENT.c.seq))
        return [(row.seq, codec.decode(row.kind, row.body)) for row in rows]

    def suggested(self, study_id: str, after: int = 0) -> list[tuple[int, Suggested]]:
        """What a study's objective was given since event ``after``: (sequence number, event)."""
        query = (
            select(EVENT.c.seq, EVENT.c.kind, EVENT.c.body)
            .join(TRIAL, TRIAL.c.id == EVENT.c.trial)
            .where(TRIAL.c.study == study_id, EVENT.c.seq > after)
            .where(EVENT.c.kind == Suggested.__name__)
            .order_by(EVENT.c.seq)
        )
        found = [(row.seq, codec.decode(row.kind, row.body)) for row in self._rows(query)]
        return [(seq, event) for seq, event in found if isinstance(event, Suggested)]

    def policy_failures(self) -> list[tuple[int, PolicyFailed]]:
        """Each time a policy of the user's gave no plan, with its number."""
        query = select(EVENT.c.seq, EVENT.c.kind, EVENT.c.body)
        rows = self._rows(query.where(EVENT.c.kind == PolicyFailed.__name__).order_by(EVENT.c.seq))
        found = [(row.seq, codec.decode(row.kind, row.body)) for row in rows]
        return [(seq, event) for seq, event in found if isinstance(event, PolicyFailed)]

    def events_at(self, seqs: Sequence[int]) -> dict[int, Event]:
        """The events of these sequence numbers: what other events name as their cause."""
        query = select(EVENT.c.seq, EVENT.c.kind, EVENT.c.body).where(EVENT.c.seq.in_(seqs))
        return {row.seq: codec.decode(row.kind, row.body) for row in self._rows(query)}

    def newest(self) -> int:
        """The number of the newest event, 0 before the first: where it is the same, all is."""
        [row] = self._rows(select(func.max(EVENT.c.seq)))
        return row[0] or 0

    def named(self, uris: Sequence[str]) -> set[str]:
        """Those of ``uris`` that a durable state names: files that are in use."""
        found: set[str] = set()
        for first in range(0, len(uris), AT_ONCE):
            some = uris[first : first + AT_ONCE]
            rows = self._rows(select(DURABLE.c.uri).where(DURABLE.c.uri.in_(some)))
            found.update(row.uri for row in rows)
        return found

    def devices(self) -> list[DeviceRecord]:
        """Every device that ever joined, by name."""
        return [_device(row) for row in self._rows(select(DEVICE).order_by(DEVICE.c.name))]

    def history(self, machine: str | None = None) -> tuple[HistoryEntry, ...]:
        """What is known of tuned system parameters, of one class of machine or of all."""
        return read_history(self._rows, machine)

    def _rows(self, query: Select[Any]) -> Sequence[Row[Any]]:
        shown = self._database.shown
        if self._database.is_absent():
            raise BackendError(f"nothing has run here yet: there is no ledger at {shown}")
        with self._database.answering(), self._engine.connect() as connection:
            at = revision(connection)
            if at is None:
                raise BackendError(f"nothing has run here yet: the ledger {shown} is empty")
            if at != HEAD:
                raise BackendError(
                    f"the ledger {shown} is at revision {at} and this Penstock reads {HEAD}:"
                    " start its scheduler once (penstock up), or install the version that wrote it"
                )
            return connection.execute(query).all()


def _no_study(name: str, known: Sequence[str]) -> str:
    """That none of the ``known`` studies (newest first) has this name, and which may be meant."""
    near = get_close_matches(name, known, n=NAMED, cutoff=0.4)
    names = list(dict.fromkeys([*near, *known]))
    if not names:
        return f"there is no study {name!r}: no study is here yet"
    more = f" and {len(names) - NAMED} more (penstock ls)" if len(names) > NAMED else ""
    verb = "is" if len(names) == 1 else "are"
    return f"there is no study {name!r}; there {verb}: {', '.join(names[:NAMED])}{more}"


def _study(row: Row[Any]) -> StudyRow:
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


def _trial(row: Row[Any]) -> TrialRow:
    fields = {name: getattr(row, name) for name in TrialRow.__slots__}
    return TrialRow(
        **fields
        | {
            "params": json.loads(row.params),
            "further": tuple(json.loads(row.further)),
            "constraints": json.loads(row.constraints),
        }
    )


def _epoch(row: Row[Any]) -> EpochRow:
    fields = {name: getattr(row, name) for name in EpochRow.__slots__ if name != "rowid"}
    return EpochRow(
        rowid=row.id,
        **fields
        | {
            "value": math.nan if row.value is None else row.value,
            "metrics": json.loads(row.metrics),
            "members": tuple((device, slot) for device, slot in json.loads(row.members)),
        },
    )


def _device(row: Row[Any]) -> DeviceRecord:
    device = Device(
        name=row.name,
        node=row.node,
        kind=row.kind,
        cores=tuple(json.loads(row.cores)),
        memory=row.memory,
        slots=row.slots,
        uuid=row.uuid,
        model=row.model,
    )
    return DeviceRecord(device, row.incarnation, row.state, row.at, row.reason)
