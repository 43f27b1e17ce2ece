"""Compute the digest of a row (see ``digests`` for its purpose). Imports no SQLAlchemy.

A value has the same digest when written and when read, on both databases. 1 and 1.0 count as one
number, and so do 0.0 and -0.0, because SQLite does not tell them apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from xxhash import xxh3_64_intdigest

#: The digest used as that of the event before: for the first event, and for rows of other tables.
NONE = 0


def digest_of(values: Iterable[Any], before: int) -> int:
    """Return the digest of ``values``, a signed 64-bit number. ``before`` seeds the hash.

    Values are joined by NUL, which no text contains.
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
    """Return the name of the row with ``keys`` for messages."""
    return f"row {', '.join(keys)} of table {table}"


def first_fault(
    table: str,
    rows: Iterable[Sequence[Any]],
    covered: slice = slice(0, -1),
    named: Callable[[Sequence[Any]], str] | None = None,
) -> str | None:
    """Return a message about the first altered row; None if all rows are as written.

    ``covered`` are the columns that the digest covers. The digest is the next column. For an event,
    the column after that has the digest of the event before. ``named`` returns a row's name for
    messages; it is not needed if the key of ``table`` is the first column.
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
