"""The history of tuned system parameters as rows of the ledger, and as a file for other machines.

Only the scheduler writes the table, in the transaction of a batch. New entries may push out older
ones (``profiling.similarity.history.trimmed``). A file states its format number and is either read
completely or refused. Entries of different classes of machine are never mixed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

from pydantic import ConfigDict, Field, ValidationError
from sqlalchemy import Row, Select, Table, select

from ...profiling.base.errors import UsageError
from ...profiling.knobs.knobs import Value
from ...profiling.similarity.history import HistoryEntry, check, trimmed
from ..common.schema import why
from ..common.versioned_file import Body, Kind, read_own, to_text
from .databases.tables import HISTORY
from .rows import readable

KIND = Kind("history", "penstock_history", 1, "penstock history export")

#: Reads whole rows of a table and refuses damaged ones.
Rows = Callable[[Table, Select[Any]], Sequence[Row[Any]]]


class _Body(Body):
    model_config = ConfigDict(strict=True)


class EntryBody(_Body):
    """The JSON form of ``profiling.similarity.history.HistoryEntry``, with the same fields."""

    workload: str
    machine: str
    source: str
    profile: dict[str, float]
    config: dict[str, Value]
    speedup: float
    joules: float | None
    windows: int
    at: float
    infeasible: bool


class HistoryFile(_Body):
    """A file with all of a history, or with that of one class of machine."""

    penstock_history: int = KIND.format
    penstock_version: str
    exported_at: Annotated[float, Field(ge=0)]
    entries: list[EntryBody]


def read_history(rows: Rows, machine: str | None) -> tuple[HistoryEntry, ...]:
    """The entries of one class of machine, or all, oldest first."""
    query = select(HISTORY).order_by(HISTORY.c.at, HISTORY.c.id)
    if machine is not None:
        query = query.where(HISTORY.c.machine == machine)
    return tuple(_from_row(row) for row in rows(HISTORY, query))


def merged(
    new: Iterable[HistoryEntry], known: Iterable[HistoryEntry]
) -> tuple[list[HistoryEntry], list[str]]:
    """Those of ``new`` that must be written, and the ids of ``known`` that they push out."""
    before = {entry.id: entry for entry in known}
    kept = {entry.id: entry for entry in trimmed((before | {e.id: e for e in new}).values())}
    written = [entry for name, entry in kept.items() if name not in before]
    return written, [name for name in before if name not in kept]


def to_row(entry: HistoryEntry) -> dict[str, Any]:
    """``entry`` as a row of the table."""
    body = _body(entry).model_dump()
    return body | {
        "id": entry.id,
        "profile": json.dumps(body["profile"]),
        "config": json.dumps(body["config"]),
    }


def to_json(entries: Iterable[HistoryEntry]) -> str:
    """``entries`` as the text of a history file."""
    file = HistoryFile(
        penstock_version=version("penstock"),
        exported_at=time.time(),
        entries=[_body(entry) for entry in entries],
    )
    return to_text(file)


def read_file(path: Path) -> list[HistoryEntry]:
    """The entries in a file. Raises ``UsageError`` if it is no history of this format."""
    return [_from_body(body) for body in read_own(path, KIND, HistoryFile).entries]


def entries_to_bodies(entries: Iterable[HistoryEntry]) -> list[dict[str, Any]]:
    """``entries`` as a message carries them."""
    return [_body(entry).model_dump() for entry in entries]


def entries_from_bodies(bodies: Any) -> list[HistoryEntry]:
    """The entries in a message. Raises ``UsageError`` naming the field that is wrong."""
    if not isinstance(bodies, list):
        raise UsageError.refuse("entries", bodies, "a list")
    try:
        return [_from_body(EntryBody.model_validate_json(json.dumps(body))) for body in bodies]
    except ValidationError as error:
        raise UsageError(f"an entry of the history is refused: {why(error)}") from error


def _from_body(body: EntryBody) -> HistoryEntry:
    fields = body.model_dump()
    fields["profile"], fields["config"] = _pairs(body.profile), _pairs(body.config)
    entry = HistoryEntry(**fields)
    check(entry)
    return entry


@readable
def _from_row(row: Row[Any]) -> HistoryEntry:
    fields = {name: getattr(row, name) for name in EntryBody.model_fields}
    fields["profile"] = _pairs(json.loads(row.profile))
    fields["config"] = _pairs(json.loads(row.config))
    return HistoryEntry(**fields)


def _body(entry: HistoryEntry) -> EntryBody:
    fields = {name: getattr(entry, name) for name in EntryBody.model_fields}
    return EntryBody(**fields | {"profile": dict(entry.profile), "config": dict(entry.config)})


def _pairs(mapping: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
    """The items sorted by name, so that equal configurations are equal values."""
    return tuple(sorted(mapping.items()))
