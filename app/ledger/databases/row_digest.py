"""Compute the digest of a row. The module ``digests`` explains the purpose of digests.

This module does not import SQLAlchemy. A value has the same digest when it is written and when it
is read, on both databases. The numbers 1 and 1.0 have the same digest, and so have 0.0 and -0.0,
because SQLite does not distinguish these numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from xxhash import xxh3_64_intdigest

#: The digest that takes the place of an earlier event's digest. The value is used for the first
#: event and for the rows of all tables other than the table of events.
NONE = 0


def digest_of(values: Iterable[Any], before: int) -> int:
    """Return the digest of ``values``, a signed 64-bit number.

    ``before`` is the digest of the event before, and seeds the hash. The values are joined by NUL,
    which no text contains.
    """
    text = "\0".join(
        [
            v if (of := v.__class__) is str else f"\1{v!r}" if of is int or v is None else _text(v)
            for v in values
        ]
    )
    return xxh3_64_intdigest(text.encode(), before & 0xFFFF_FFFF_FFFF_FFFF) - (1 << 63)


def _text(value: Any) -> str:
    if value.__class__ is bool or (value.__class__ is float and value.is_integer()):
        value = int(value)
    return f"\1{value!r}"


def row_name(table: str, keys: Iterable[str]) -> str:
    """Return the name, for messages, of the row with these primary ``keys``."""
    return f"row {', '.join(keys)} of table {table}"


def first_fault(
    table: str,
    rows: Iterable[Sequence[Any]],
    covered: slice = slice(0, -1),
    named: Callable[[Sequence[Any]], str] | None = None,
) -> str | None:
    """Return a message about the first altered row, or None if all rows are as written.

    ``covered`` is the slice of the columns that the digest covers. The digest is the next column.
    In a row of an event, the column after the digest has the digest of the event before. ``named``
    returns the name of a row for messages. ``named`` is not needed if the key of ``table`` is the
    first column.
    """
    chained = table == "event"
    for row in rows:
        before = row[covered.stop + 1] if chained else NONE
        if before is None:
            if row[covered.start] > 1:
                return f"event {row[covered.start] - 1} is missing"
            before = NONE
        if digest_of(row[covered], before) != row[covered.stop]:
            name = row_name(table, [str(row[0])]) if named is None else named(row)
            return f"{name} is not what was written"
    return None
