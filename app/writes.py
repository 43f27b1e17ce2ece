"""A batch as statements and rows: what one commit of the ledger hands to the database.

The statements are SQLAlchemy's, compiled once, and run by the driver itself: a commit of one epoch
then costs half as much, and every round trip of an epoch waits for one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from sqlalchemy import Delete, Table, bindparam, delete, func, select
from sqlalchemy.dialects.sqlite import Insert, dialect, insert

from ..scheduler.decisions import Member, Parent
from ..scheduler.events import Event
from ..scheduler.study import StudyRecord
from ..scheduler.trial import AcceptedEpoch, Trial
from . import codec
from .tables import COMMAND, DEVICE, DURABLE, EPOCH, EVENT, SNAPSHOT, STUDY, TRIAL

if TYPE_CHECKING:
    from ..scheduler.state import DeviceRecord
    from .ledger import Batch


def _sql(statement: Insert | Delete) -> str:
    return str(statement.compile(dialect=dialect(paramstyle="named")))


def _insert(table: Table) -> Insert:
    given = [column.name for column in table.c if column is not table.autoincrement_column]
    return insert(table).values({name: bindparam(name) for name in given})


def _upsert(table: Table, *fixed: str) -> Insert:
    """Insert into ``table``, or where the row is there change all of it but ``fixed`` columns."""
    statement = _insert(table)
    kept = {*fixed, *table.primary_key.columns.keys()}
    new = {name: value for name, value in statement.excluded.items() if name not in kept}
    return statement.on_conflict_do_update(index_elements=list(table.primary_key), set_=new)


_EVENT = _sql(_insert(EVENT))
_STUDY = _sql(_upsert(STUDY, "name", "created_at"))
_TRIAL = _sql(_upsert(TRIAL, "study", "number", "created_at"))
_EPOCH = _sql(_insert(EPOCH))
_DURABLE = _sql(_upsert(DURABLE))
_DISCARDED = _sql(
    delete(DURABLE).where(
        DURABLE.c.trial == bindparam("trial"), DURABLE.c.epoch == bindparam("epoch")
    )
)
_DEVICE = _sql(_upsert(DEVICE))
_COMMAND = _sql(_insert(COMMAND))
_SNAPSHOT = _sql(_upsert(SNAPSHOT))

# The newest two snapshots stay: the one before the last is at hand should the last be unreadable.
_BEFORE = select(func.max(SNAPSHOT.c.seq)).where(SNAPSHOT.c.seq < bindparam("newest"))
#: Forgets all snapshots but ``newest`` and the one before it.
FORGET = _sql(delete(SNAPSHOT).where(SNAPSHOT.c.seq < _BEFORE.scalar_subquery()))

_Rows = list[dict[str, Any]]


def writes(batch: Batch) -> Iterator[tuple[str, _Rows]]:
    """Each statement of the transaction with its rows; a row comes after those it refers to."""
    yield _EVENT, [_event(seq, event) for seq, event in batch.events]
    yield _STUDY, [_study(record) for record in batch.studies]
    yield _TRIAL, [_trial(trial) for trial in batch.trials]
    yield _EPOCH, [_epoch(epoch) for epoch in batch.epochs]
    yield _DURABLE, [_durable(*durable) for durable in batch.durables]
    yield _DISCARDED, [{"trial": trial, "epoch": epoch} for trial, epoch in batch.discarded]
    yield _DEVICE, [_device(record) for record in batch.devices]
    yield _COMMAND, [{"id": id_, "reply": reply} for id_, reply in batch.commands]
    yield _SNAPSHOT, [{"seq": seq, "body": body} for seq, body in filter(None, [batch.snapshot])]


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
        "message": codec.storable(record.message),
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
        "failure_kind": failure and failure.kind,
        "failure_message": failure and codec.storable(failure.message),
        "failure_traceback": failure and codec.storable(failure.traceback),
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
        "reason": codec.storable(record.reason),
    }
