"""Give every row of the ledger a digest, which reveals damage inside the row.

Theory of operation. A database notices damage to the structure of its file, but not a changed digit
in a text. So every row has a 64-bit digest over all its values. The digest is written in the same
transaction as the row, and every reader of the row compares it. The digest of an event also covers
the digest of the event before. So the events form a chain, which also reveals an event that is
missing, repeated or from another history.

The module ``row_digest`` computes the digests.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any

from sqlalchemy import Column, Connection, MetaData, Row, Table, bindparam, inspect, select, update

from .row_digest import NONE, digest_of, first_fault, row_name
from .tables import EVENT, METADATA

_BEFORE = EVENT.alias("before")
#: A query for each event with the digest of the event before, which ``fault`` needs for its check.
EVENTS = select(EVENT, _BEFORE.c.digest.label("before")).outerjoin(
    _BEFORE, _BEFORE.c.seq == EVENT.c.seq - 1
)
#: The number of rows that are read or written at once.
PAGE = 1000


@cache
def covered(table: Table) -> slice:
    """Return the slice of the columns of ``table`` that the digest covers.

    The digest itself, which is the last column, is not covered. The ``id`` that the database gives
    to an accepted epoch is not covered either.
    """
    return slice(int(table.autoincrement_column is not None), len(table.c) - 1)


@cache
def _names(table: Table) -> tuple[str, ...]:
    return tuple(table.c.keys()[covered(table)])


def seal(table: Table, rows: Sequence[dict[str, Any]], before: int) -> None:
    """Set the digest of each of ``rows``.

    For events, ``before`` is the digest of the last earlier event. For rows of other tables,
    ``before`` is not used.
    """
    names = _names(table)
    for row in rows:
        digest = digest_of([row[name] for name in names], before if table is EVENT else NONE)
        row["digest"] = before = digest


def fault(table: Table, rows: Iterable[Sequence[Any]], at: int = 0) -> str | None:
    """Return a message about the first row that was altered, or None if all rows are as written.

    The columns of ``table`` begin at index ``at`` of a row. A row of an event (``EVENTS``) ends
    with the digest of the event before.
    """
    first, last = at + covered(table).start, at + len(table.c) - 1
    return first_fault(table.name, rows, slice(first, last), lambda row: name_of(table, row, at))


def name_of(table: Table, row: Sequence[Any], at: int = 0) -> str:
    """Return the name of a row for messages.

    The columns of ``table`` begin at index ``at`` of the row.
    """
    if table is EVENT:
        return f"event {row[at]} (or the one before it)"
    keys = [str(row[at + index]) for index, column in enumerate(table.c) if column.primary_key]
    return row_name(table.name, keys)


def sealed_tables(connection: Connection) -> Iterator[Table]:
    """Yield the tables of a ledger that have digests, each with the columns of the ledger's schema.

    Migrations only add columns, so the columns of an older schema have the same order.
    """
    inspector = inspect(connection)
    for table in METADATA.sorted_tables:
        if not inspector.has_table(table.name):
            continue
        names = {column["name"] for column in inspector.get_columns(table.name)}
        columns = [column for column in table.c if column.name in names]
        if len(columns) == len(table.c):
            yield table
        elif "digest" in names:
            assert table is not EVENT, "its chain is read by a query for all of its columns"
            yield Table(table.name, MetaData(), *map(_alike, columns))


def _alike(column: Column[Any]) -> Column[Any]:
    return Column(
        column.name,
        column.type,
        primary_key=column.primary_key,
        autoincrement=column.autoincrement,
    )


def faults(connection: Connection) -> Iterator[str]:
    """Yield a message for each table that has an altered row.

    All rows that have digests are read.
    """
    for table in sealed_tables(connection):
        query = EVENTS.order_by(EVENT.c.seq) if table is EVENT else select(table)
        for rows in _pages(connection, query):
            if message := fault(table, rows):
                yield message
                break


def seal_all(connection: Connection) -> None:
    """Compute the digests of all rows of a ledger again, for example after ``upkeep.migrate``."""
    for table in sealed_tables(connection):
        keys = [column for column in table.c if column.primary_key]
        statement = (
            update(table)
            .where(*(column == bindparam(f"key_{column.name}") for column in keys))
            .values(digest=bindparam("new"))
        )
        last, names = NONE, table.c.keys()
        query = select(table).order_by(*keys)
        for page in list(_pages(connection, query)):
            rows = [dict(zip(names, row, strict=True)) for row in page]
            seal(table, rows, last)
            last = rows[-1]["digest"]
            connection.execute(
                statement,
                [{f"key_{c.name}": r[c.name] for c in keys} | {"new": r["digest"]} for r in rows],
            )


def _pages(connection: Connection, query: Any) -> Iterator[Sequence[Row[Any]]]:
    cursor = connection.execute(query, execution_options={"yield_per": PAGE})
    yield from cursor.partitions()
