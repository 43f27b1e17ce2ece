"""Turn a batch into the statements and rows that one commit of the ledger writes.

SQLAlchemy compiles the statements once for each kind of database, and the driver runs them
directly. Running the statements directly halves the cost of committing an epoch. The round trip of
every epoch waits for this commit.

Both kinds of database store the same values. NaN, which SQLite cannot store, becomes NULL. A NUL
character, which PostgreSQL cannot store, is replaced.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import Delete, Table, bindparam, delete, func, select
from sqlalchemy.dialects import sqlite

from ...base.values import value_class
from ...scheduler.model.decisions import Member, Parent
from ...scheduler.model.events import Event
from ...scheduler.model.study import StudyRecord
from ...scheduler.model.trial import AcceptedEpoch, Trial
from . import adopted, codec
from .databases.digests import seal
from .databases.row_digest import NONE
from .databases.tables import (
    ADOPTED,
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
    from .adopted import Adoption

    Insert = sqlite.Insert | postgresql.Insert

_Row = dict[str, Any]
_Rows = list[_Row]


@value_class(frozen=True, slots=True)
class Batch:
    """The content of one transaction.

    Studies, trials and devices replace the rows with the same id. Everything else is added.
    """

    #: The events with their sequence numbers, in order.
    events: Sequence[tuple[int, Event]] = ()
    studies: Sequence[StudyRecord] = ()
    trials: Sequence[Trial] = ()
    epochs: Sequence[AcceptedEpoch] = ()
    #: States that became durable: the id of the trial, the state, and the time in seconds.
    durables: Sequence[tuple[str, Parent, float]] = ()
    #: Durable states that were discarded: the id of the trial and the epoch.
    discarded: Sequence[tuple[str, int]] = ()
    devices: Sequence[DeviceRecord] = ()
    #: The commands that were carried out: the id of the command and the text of the reply.
    commands: Sequence[tuple[str, str]] = ()
    #: A snapshot: the number of the last event that the snapshot covers, and the text of the
    #: snapshot.
    snapshot: tuple[int, str] | None = None
    #: Entries for the history of tuned system parameters. The history drops old entries to stay
    #: short.
    history: Sequence[HistoryEntry] = ()
    #: System configurations that users have pinned, in the order of the choices.
    adopted: Sequence[Adoption] = ()


class Writes:
    """The SQL statements for one kind of database.

    ``dialect`` is the database's name in SQLAlchemy.
    """

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
        # The newest two snapshots stay, so that one is left if the last cannot be read.
        before = select(func.max(SNAPSHOT.c.seq)).where(SNAPSHOT.c.seq < bindparam("seq"))
        self._forget = self._sql(delete(SNAPSHOT).where(SNAPSHOT.c.seq < before.scalar_subquery()))

        self._history = self._sql(self._insert(HISTORY))
        is_entry = HISTORY.c.id == bindparam("id")
        self._forgotten = self._sql(delete(HISTORY).where(is_entry))
        self._adopted = self._upsert(ADOPTED)

    def of(
        self, batch: Batch, forgotten: Sequence[str] = (), before: int = NONE
    ) -> list[tuple[str, _Rows]]:
        """Return the statements of a transaction and their rows.

        The order of the statements satisfies the foreign keys. The events come first. ``forgotten``
        contains the ids of the entries that the history drops. ``before`` is the digest of the
        newest event that is already written.
        """
        snapshots = [] if batch.snapshot is None else [batch.snapshot]
        statements: tuple[tuple[str, Table | None, Callable[[Any], _Row], Sequence[Any]], ...] = (
            (self._event, EVENT, _event, batch.events),
            (self._study, STUDY, _study, batch.studies),
            (self._trial, TRIAL, _trial, batch.trials),
            (self._epoch, EPOCH, _epoch, batch.epochs),
            (self._durable, DURABLE, _durable, batch.durables),
            (self._discarded, None, _discarded, batch.discarded),
            (self._device, DEVICE, _device, batch.devices),
            (self._command, COMMAND, _command, batch.commands),
            (self._snapshot, SNAPSHOT, _snapshot, snapshots),
            (self._forget, None, _covered, snapshots),
            (self._forgotten, None, _forgotten, forgotten),
            (self._history, HISTORY, to_row, batch.history),
            (self._adopted, ADOPTED, adopted.to_row, batch.adopted),
        )
        whole: list[tuple[str, _Rows]] = []
        for statement, table, row_of, items in statements:
            if items:
                rows = [row_of(each) for each in items]
                for row in rows:
                    _make_storable(row)
                if table is not None:
                    seal(table, rows, before)
                whole.append((statement, rows))
        return whole

    def _sql(self, statement: Insert | Delete) -> str:
        return str(statement.compile(dialect=self._dialect))

    def _insert(self, table: Table) -> Insert:
        names = [column.name for column in table.c if column is not table.autoincrement_column]
        # inline: the number that the database gives the row is not needed.
        return self._new(table).values({name: bindparam(name) for name in names}).inline()

    def _upsert(self, table: Table) -> str:
        """Return a statement that inserts a row or replaces the whole row.

        The row must be replaced as a whole because its digest covers all columns.
        """
        statement = self._insert(table)
        keys = list(table.primary_key)
        key_names = {key.name for key in keys}
        new = {name: value for name, value in statement.excluded.items() if name not in key_names}
        return self._sql(statement.on_conflict_do_update(index_elements=keys, set_=new))


#: The statements for a kind of database. They are made once and cached.
writes_for = cache(Writes)


def _make_storable(row: _Row) -> None:
    """Replace those values of a row that one of the databases cannot store."""
    for name, value in row.items():
        if value.__class__ is str:
            if not value.isascii() or "\0" in value:
                row[name] = codec.storable(value)
        elif isinstance(value, float) and math.isnan(value):
            row[name] = None


def _object(pairs: Sequence[tuple[str, Any]]) -> str:
    """Return pairs of a name and a value as a JSON object. The usual case of no pairs is fast."""
    return json.dumps(dict(pairs)) if pairs else "{}"


def _array(values: Sequence[Any]) -> str:
    """Return ``values`` as a JSON array. The usual case of no values is fast."""
    return json.dumps(values) if values else "[]"


def _event(written: tuple[int, Event]) -> _Row:
    seq, event = written
    kind, body = codec.encode(event)
    study, trial = codec.subject(event)
    return {"seq": seq, "study": study, "trial": trial, "kind": kind, "at": event.at, "body": body}


def _study(record: StudyRecord) -> _Row:
    return {
        "id": record.spec.id,
        "name": record.spec.name,
        "status": record.status,
        "created_at": record.created_at,
        "finished_at": record.finished_at,
        "message": record.message,
        "spec": codec.spec_to_json(record.spec),
        "spent": codec.spent_to_json(record.spent),
        "summary": "",
    }


def _trial(trial: Trial) -> _Row:
    failure = trial.failure
    return {
        "id": trial.id,
        "study": trial.study,
        "number": trial.number,
        "state": trial.state.value,
        "params": _object(trial.params),
        "epoch": trial.epoch,
        "target": trial.target,
        "value": trial.value,
        "device": trial.device,
        "slot": trial.slot,
        "members": _members(trial.members),
        "created_at": trial.created_at,
        "dispatched_at": trial.dispatched_at,
        "finished_at": trial.finished_at,
        "further": _array(trial.further),
        "constraints": _object(trial.constraints),
        "system": _array(trial.system),
        "failure_kind": failure and failure.kind,
        "failure_message": failure and failure.message,
        "failure_traceback": failure and failure.traceback,
        "origin_trial": trial.origin and trial.origin.trial,
        "origin_epoch": trial.origin and trial.origin.epoch,
        "replaces": trial.origin and trial.origin.replaces,
        "origin_keys": trial.origin and trial.origin.keys,
    }


def _epoch(epoch: AcceptedEpoch) -> _Row:
    return {
        "trial": epoch.trial,
        "epoch": epoch.epoch,
        "value": epoch.value,
        "metrics": _object(epoch.metrics),
        "state_hash": epoch.state_hash,
        "signature": epoch.signature,
        "seconds": epoch.seconds,
        "device": epoch.device,
        "slot": epoch.slot,
        "fence": epoch.fence,
        "at": epoch.at,
        "members": _members(epoch.members),
        "joules": epoch.joules,
        "system": _array(epoch.system),
        "length": "" if epoch.length is None else json.dumps(epoch.length._asdict()),
        "began": epoch.began,
        "taken_from": epoch.taken_from,
    }


@lru_cache(maxsize=1000)
def _members(members: tuple[Member, ...]) -> str:
    """Return devices and slots as JSON. Results are cached, since a trial keeps its devices."""
    return _array([(member.device, member.slot) for member in members])


def _durable(durable: tuple[str, Parent, float]) -> _Row:
    trial, state, at = durable
    return {
        "trial": trial,
        "epoch": state.epoch,
        "state_hash": state.state_hash,
        "uri": state.uri,
        "at": at,
    }


def _discarded(key: tuple[str, int]) -> _Row:
    return {"trial": key[0], "epoch": key[1]}


def _command(carried_out: tuple[str, str]) -> _Row:
    return {"id": carried_out[0], "reply": carried_out[1]}


def _snapshot(snapshot: tuple[int, str]) -> _Row:
    return {"seq": snapshot[0], "body": snapshot[1]}


def _covered(snapshot: tuple[int, str]) -> _Row:
    return {"seq": snapshot[0]}


def _forgotten(entry: str) -> _Row:
    return {"id": entry}


def _device(record: DeviceRecord) -> _Row:
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
        "seats": device.seats,
    }
