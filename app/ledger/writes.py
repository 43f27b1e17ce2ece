"""A batch as statements and rows: what one commit of the ledger hands to the database.

The statements are SQLAlchemy's, compiled once for each kind of database, and run by the driver
itself: a commit of one epoch then costs half as much, and every round trip of an epoch waits for
one.

Both databases keep the same: NaN, which SQLite cannot hold, as NULL, and no NUL character, which
PostgreSQL cannot hold.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import Delete, Table, bindparam, delete, func, select
from sqlalchemy.dialects import sqlite

from ...scheduler.model.decisions import Member, Parent
from ...scheduler.model.events import Event
from ...scheduler.model.study import StudyRecord
from ...scheduler.model.trial import AcceptedEpoch, Trial
from . import codec
from .databases.digests import NONE, seal
from .databases.tables import (
    COMMAND,
    DEVICE,
    DURABLE,
    EPOCH,
    EVENT,
    HISTORY,
    SNAPSHOT,
    STUDY,
    TRIAL,
)
from .history import to_row

if TYPE_CHECKING:
    from sqlalchemy.dialects import postgresql

    from ...profiling.similarity.history import HistoryEntry
    from ...scheduler.state.state import DeviceRecord

    Insert = sqlite.Insert | postgresql.Insert

_Rows = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Batch:
    """What one transaction writes. Records replace those of the same id; the rest is added.

    ``events`` are (sequence number, event) in order; ``durables`` (trial, state, time in seconds);
    ``discarded`` (trial, epoch) of durable states that are let go;
    ``commands`` (command id, reply text); ``snapshot`` (last event that it covers, text).
    ``history`` is appended to the history of tuned system parameters, which stays short.
    """

    events: Sequence[tuple[int, Event]] = ()
    studies: Sequence[StudyRecord] = ()
    trials: Sequence[Trial] = ()
    epochs: Sequence[AcceptedEpoch] = ()
    durables: Sequence[tuple[str, Parent, float]] = ()
    discarded: Sequence[tuple[str, int]] = ()
    devices: Sequence[DeviceRecord] = ()
    commands: Sequence[tuple[str, str]] = ()
    snapshot: tuple[int, str] | None = None
    history: Sequence[HistoryEntry] = ()


class Writes:
    """The statements for one kind of database, by SQLAlchemy's name of it."""

    def __init__(self, dialect: str) -> None:
        if dialect == "sqlite":
            self._new: Callable[[Table], Insert] = sqlite.insert
            self._dialect: Any = sqlite.dialect(paramstyle="named")
        else:
            from sqlalchemy.dialects import postgresql
            from sqlalchemy.dialects.postgresql import psycopg

            self._new = postgresql.insert
            self._dialect = psycopg.dialect()  # type: ignore[no-untyped-call]  # it has no types
        self._event = self._sql(self._insert(EVENT))
        self._study = self._upsert(STUDY)
        self._trial = self._upsert(TRIAL)
        self._epoch = self._sql(self._insert(EPOCH))
        self._durable = self._upsert(DURABLE)
        of_it = DURABLE.c.trial == bindparam("trial"), DURABLE.c.epoch == bindparam("epoch")
        self._discarded = self._sql(delete(DURABLE).where(*of_it))
        self._device = self._upsert(DEVICE)
        self._command = self._sql(self._insert(COMMAND))
        self._snapshot = self._upsert(SNAPSHOT)
        # The newest two stay: the one before the last is at hand should the last be unreadable.
        before = select(func.max(SNAPSHOT.c.seq)).where(SNAPSHOT.c.seq < bindparam("seq"))
        self._forget = self._sql(delete(SNAPSHOT).where(SNAPSHOT.c.seq < before.scalar_subquery()))

        self._history = self._sql(self._insert(HISTORY))
        gone = HISTORY.c.id == bindparam("id")
        self._forgotten = self._sql(delete(HISTORY).where(gone))

    def of(
        self, batch: Batch, forgotten: Sequence[str] = (), before: int = NONE
    ) -> list[tuple[str, _Rows]]:
        """Each statement of the transaction with its rows; a row follows those it refers to.

        The events come first. ``forgotten`` are the ids of entries that the history lets go;
        ``before`` is the digest of the newest event that is written already.
        """
        snapshots = [{"seq": seq, "body": body} for seq, body in filter(None, [batch.snapshot])]
        statements: tuple[tuple[str, Table | None, _Rows], ...] = (
            (self._event, EVENT, [_event(seq, event) for seq, event in batch.events]),
            (self._study, STUDY, [_study(record) for record in batch.studies]),
            (self._trial, TRIAL, [_trial(trial) for trial in batch.trials]),
            (self._epoch, EPOCH, [_epoch(epoch) for epoch in batch.epochs]),
            (self._durable, DURABLE, [_durable(*durable) for durable in batch.durables]),
            (self._discarded, None, [{"trial": trial, "epoch": n} for trial, n in batch.discarded]),
            (self._device, DEVICE, [_device(record) for record in batch.devices]),
            (self._command, COMMAND, [{"id": id_, "reply": text} for id_, text in batch.commands]),
            (self._snapshot, SNAPSHOT, snapshots),
            (self._forget, None, [{"seq": row["seq"]} for row in snapshots]),
            (self._forgotten, None, [{"id": name} for name in forgotten]),
            (self._history, HISTORY, [to_row(entry) for entry in batch.history]),
        )
        whole: list[tuple[str, _Rows]] = []
        for statement, table, given in statements:
            if given:
                rows = [{n: _kept(value) for n, value in row.items()} for row in given]
                if table is not None:
                    seal(table, rows, before)
                whole.append((statement, rows))
        return whole

    def _sql(self, statement: Insert | Delete) -> str:
        return str(statement.compile(dialect=self._dialect))

    def _insert(self, table: Table) -> Insert:
        given = [column.name for column in table.c if column is not table.autoincrement_column]
        # inline: the number that the database gives a row is not asked for.
        return self._new(table).values({name: bindparam(name) for name in given}).inline()

    def _upsert(self, table: Table) -> str:
        """Insert into ``table``, or replace the row that is there: its digest is of all of it."""
        statement = self._insert(table)
        keys = list(table.primary_key)
        named = {key.name for key in keys}
        new = {name: value for name, value in statement.excluded.items() if name not in named}
        return self._sql(statement.on_conflict_do_update(index_elements=keys, set_=new))


#: Made once for each kind of database.
writes_for = cache(Writes)


def _kept(value: Any) -> Any:
    """``value`` as both databases can keep it."""
    if isinstance(value, str):
        return codec.storable(value)
    return None if isinstance(value, float) and math.isnan(value) else value


def _event(seq: int, event: Event) -> dict[str, Any]:
    kind, body = codec.encode(event)
    study, trial = codec.subject(event)
    return {"seq": seq, "study": study, "trial": trial, "kind": kind, "at": event.at, "body": body}


def _study(record: StudyRecord) -> dict[str, Any]:
    return {
        "id": record.spec.id,
        "name": record.spec.name,
        "status": record.status,
        "created_at": record.created_at,
        "finished_at": record.finished_at,
        "message": record.message,
        "spec": codec.spec_to_json(record.spec),
    }


def _trial(trial: Trial) -> dict[str, Any]:
    failure = trial.failure
    return {
        "id": trial.id,
        "study": trial.study,
        "number": trial.number,
        "state": trial.state.value,
        "params": json.dumps(dict(trial.params)),
        "epoch": trial.epoch,
        "target": trial.target,
        "value": trial.value,
        "device": trial.device,
        "slot": trial.slot,
        "members": _members(trial.members),
        "created_at": trial.created_at,
        "dispatched_at": trial.dispatched_at,
        "finished_at": trial.finished_at,
        "further": json.dumps(trial.further),
        "constraints": json.dumps(dict(trial.constraints)),
        "system": json.dumps(trial.system),
        "failure_kind": failure and failure.kind,
        "failure_message": failure and failure.message,
        "failure_traceback": failure and failure.traceback,
        "origin_trial": trial.origin and trial.origin.trial,
        "origin_epoch": trial.origin and trial.origin.epoch,
        "replaces": trial.origin and trial.origin.replaces,
    }


def _epoch(epoch: AcceptedEpoch) -> dict[str, Any]:
    return {
        "trial": epoch.trial,
        "epoch": epoch.epoch,
        "value": epoch.value,
        "metrics": json.dumps(dict(epoch.metrics)),
        "state_hash": epoch.state_hash,
        "signature": epoch.signature,
        "seconds": epoch.seconds,
        "device": epoch.device,
        "slot": epoch.slot,
        "fence": epoch.fence,
        "at": epoch.at,
        "members": _members(epoch.members),
        "joules": epoch.joules,
        "system": json.dumps(epoch.system),
    }


def _members(members: tuple[Member, ...]) -> str:
    return json.dumps([(member.device, member.slot) for member in members])


def _durable(trial: str, state: Parent, at: float) -> dict[str, Any]:
    return {
        "trial": trial,
        "epoch": state.epoch,
        "state_hash": state.state_hash,
        "uri": state.uri,
        "at": at,
    }


def _device(record: DeviceRecord) -> dict[str, Any]:
    device = record.device
    return {
        "name": device.name,
        "node": device.node,
        "kind": device.kind,
        "cores": json.dumps(device.cores),
        "memory": device.memory,
        "slots": device.slots,
        "uuid": device.uuid,
        "model": device.model,
        "incarnation": record.incarnation,
        "state": record.state,
        "at": record.at,
        "reason": record.reason,
        "unmetered": device.unmetered,
    }
