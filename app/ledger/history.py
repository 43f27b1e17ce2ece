"""The history of tuned system parameters, as rows of the ledger and as a file for other machines.

Only the scheduler writes the table, in the transaction of a batch. New entries may displace older
entries (``profiling.similarity.history.trimmed``). A history file states the number of its format.
The file is either read completely or refused. Entries of different classes of machines are never
mixed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, fields
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    TypeAdapter,
    ValidationError,
)
from sqlalchemy import Row, Select, Table, select

from ...base.errors import UsageError
from ...profiling.similarity.history import HistoryEntry, check, trimmed
from ..common.schema import why
from ..common.versioned_file import Body, Kind, read_own, to_text
from .databases.tables import HISTORY
from .rows import readable

KIND = Kind("history", "penstock_history", 1, "penstock history export")

#: A function that reads whole rows of a table and refuses damaged rows.
Rows = Callable[[Table, Select[Any]], Sequence[Row[Any]]]


def _with_pairs(given: Any) -> Any:
    """Return the fields of an entry, read from JSON, with pairs in place of mappings."""
    values = given if isinstance(given, dict) else {}
    mappings = {name: values.get(name) for name in ("profile", "config")}
    pairs = {name: tuple(it.items()) for name, it in mappings.items() if isinstance(it, dict)}
    return values | pairs if pairs else given


def _with_mappings(entry: HistoryEntry) -> dict[str, Any]:
    """Return the fields of an entry for JSON, with mappings in place of pairs.

    An unknown ``spread`` is left out, so that version 0.2 can read the entry.
    """
    body = asdict(entry) | {"profile": dict(entry.profile), "config": dict(entry.config)}
    if entry.spread is None:
        del body["spread"]
    return body


#: A history entry whose profile and configuration are mappings in JSON.
Entry = Annotated[HistoryEntry, BeforeValidator(_with_pairs), PlainSerializer(_with_mappings)]
_ENTRIES = TypeAdapter(
    list[Entry], config=ConfigDict(strict=True, extra="forbid", defer_build=True)
)


class HistoryFile(Body):
    """A file with the whole history, or with the history of one class of machines."""

    model_config = ConfigDict(strict=True)

    penstock_history: int = KIND.format
    penstock_version: str
    exported_at: Annotated[float, Field(ge=0)]
    entries: list[Entry]


def read_history(rows: Rows, machine: str | None) -> tuple[HistoryEntry, ...]:
    """Return the entries of the class of machines ``machine``, oldest first.

    If ``machine`` is None, return the entries of all classes.
    """
    query = select(HISTORY).order_by(HISTORY.c.at, HISTORY.c.id)
    if machine is not None:
        query = query.where(HISTORY.c.machine == machine)
    return tuple(_from_row(row) for row in rows(HISTORY, query))


def merged(
    new: Iterable[HistoryEntry], known: Iterable[HistoryEntry]
) -> tuple[list[HistoryEntry], list[str]]:
    """Merge new entries into the known entries.

    Return the entries of ``new`` to write, and the ids of the entries of ``known`` that the new
    entries displace.
    """
    before = {entry.id: entry for entry in known}
    remaining = {entry.id: entry for entry in trimmed((before | {e.id: e for e in new}).values())}
    new_entries = [entry for name, entry in remaining.items() if name not in before]
    return new_entries, [name for name in before if name not in remaining]


def to_row(entry: HistoryEntry) -> dict[str, Any]:
    """Return ``entry`` as a row of the table."""
    body = _with_mappings(entry)
    return body | {
        "id": entry.id,
        "spread": entry.spread,
        "profile": json.dumps(body["profile"]),
        "config": json.dumps(body["config"]),
    }


def to_json(entries: Iterable[HistoryEntry]) -> str:
    """Return ``entries`` as the text of a history file."""
    file = HistoryFile(
        penstock_version=version("penstock"),
        exported_at=time.time(),
        entries=list(entries),
    )
    return to_text(file)


def read_file(path: Path) -> list[HistoryEntry]:
    """Return the entries in a history file. Raises UsageError if the file has another format."""
    return _checked(read_own(path, KIND, HistoryFile).entries)


def entries_to_bodies(entries: Iterable[HistoryEntry]) -> list[dict[str, Any]]:
    """Return ``entries`` in the form in which a message contains them."""
    return [_with_mappings(entry) for entry in entries]


def entries_from_bodies(bodies: Any) -> list[HistoryEntry]:
    """Return the entries in a message. Raises UsageError with the name of a wrong field."""
    try:
        return _checked(_ENTRIES.validate_json(json.dumps(bodies)))
    except ValidationError as error:
        raise UsageError(f"an entry of the history is refused: {why(error)}") from error


def _checked(entries: list[HistoryEntry]) -> list[HistoryEntry]:
    for entry in entries:
        check(entry)
    return entries


@readable
def _from_row(row: Row[Any]) -> HistoryEntry:
    values = {each.name: getattr(row, each.name) for each in fields(HistoryEntry)}
    pairs = {name: tuple(json.loads(values[name]).items()) for name in ("profile", "config")}
    return HistoryEntry(**values | pairs)
