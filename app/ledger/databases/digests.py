"""A digest with every row of the ledger, by which damage inside a row is seen.

Theory of operation. A database notices where its file is out of joint, not where a digit in a text
is another one. So every row carries 64 bits over all that it says, written in its own transaction,
and whoever reads a row compares them. The digest of an event begins with that of the event before
it: so the events are a chain, and one that is missing, repeated or of another history is seen like
one that was changed.

A value has the same digest on its way in and on its way out, on both databases: 1 and 1.0 are one
number, and so are 0.0 and -0.0, for SQLite keeps no more apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any

from sqlalchemy import Connection, Row, Table, bindparam, select, update
from xxhash import xxh3_64_intdigest

from .tables import EVENT, METADATA

_BEFORE = EVENT.alias("before")
#: Events with the digest of the one before each: what ``faults`` needs to check any of them.
EVENTS = select(EVENT, _BEFORE.c.digest.label("before")).outerjoin(
    _BEFORE, _BEFORE.c.seq == EVENT.c.seq - 1
)
#: Of the event before the first.
NONE = 0
#: Rows that are read or written at once.
PAGE = 1000


def digest_of(values: Iterable[Any], before: int = NONE) -> int:
    """64 bits, signed as both databases keep them. No text holds a NUL, which stands between."""
    text = "\0".join([v if v.__class__ is str else _text(v) for v in values])
    return xxh3_64_intdigest(text.encode(), before & 0xFFFF_FFFF_FFFF_FFFF) - (1 << 63)


def _text(value: Any) -> str:
    if value.__class__ is bool or (value.__class__ is float and value.is_integer()):
        value = int(value)
    return f"\1{value!r}"


@cache
def covered(table: Table) -> slice:
    """Which columns of ``table`` have a part in the digest: not itself, which is the last.

    Nor the number that the database gives a row of the accepted epochs.
    """
    return slice(int(table.autoincrement_column is not None), len(table.c) - 1)


@cache
def _names(table: Table) -> tuple[str, ...]:
    return tuple(table.c.keys()[covered(table)])


def seal(table: Table, rows: Sequence[dict[str, Any]], before: int) -> None:
    """Give each of ``rows`` its digest; ``before`` is that of the event before the first one."""
    names = _names(table)
    for row in rows:
        digest = digest_of([row[name] for name in names], before if table is EVENT else NONE)
        row["digest"] = before = digest


def fault(table: Table, rows: Iterable[Sequence[Any]], at: int = 0) -> str | None:
    """What is wrong with the first of ``rows`` that is not as it was written, in words.

    A row begins with all columns of ``table``, at place ``at``; that of an event (``EVENTS``) ends
    with the digest before it.
    """
    part, last = covered(table), at + len(table.c) - 1
    first = at + part.start
    chained = table is EVENT
    for row in rows:
        before = row[last + 1] if chained else NONE
        if before is None:
            if row[at] > 1:
                return f"event {row[at] - 1} is missing"
            before = NONE
        if digest_of(row[first:last], before) != row[last]:
            return f"{name_of(table, row, at)} is not what was written"
    return None


def name_of(table: Table, row: Sequence[Any], at: int = 0) -> str:
    """What messages call a row."""
    if table is EVENT:
        return f"event {row[at]} (or the one before it)"
    keys = [str(row[at + place]) for place, column in enumerate(table.c) if column.primary_key]
    return f"row {', '.join(keys)} of table {table.name}"


def faults(connection: Connection) -> Iterator[str]:
    """What is wrong in the rows of all tables. Reads everything."""
    for table in METADATA.sorted_tables:
        query = EVENTS.order_by(EVENT.c.seq) if table is EVENT else select(table)
        for rows in _pages(connection, query):
            if found := fault(table, rows):
                yield found
                break


def seal_all(connection: Connection) -> None:
    """Give every row of a ledger that was migrated its digest."""
    for table in METADATA.sorted_tables:
        keys = [column for column in table.c if column.primary_key]
        statement = (
            update(table)
            .where(*(column == bindparam(f"key_{column.name}") for column in keys))
            .values(digest=bindparam("new"))
        )
        last, names = NONE, table.c.keys()
        query = select(table).order_by(*keys)
        for found in list(_pages(connection, query)):
            rows = [dict(zip(names, row, strict=True)) for row in found]
            seal(table, rows, last)
            last = rows[-1]["digest"]
            connection.execute(
                statement,
                [{f"key_{c.name}": r[c.name] for c in keys} | {"new": r["digest"]} for r in rows],
            )


def _pages(connection: Connection, query: Any) -> Iterator[Sequence[Row[Any]]]:
    found = connection.execute(query, execution_options={"yield_per": PAGE})
    yield from found.partitions()
