"""Computes the digest of a row (``digests`` says what it is for). It imports no SQLAlchemy.

A value has the same digest when written and when read, on both databases. 1 and 1.0 count as one
number, and so do 0.0 and -0.0, because SQLite does not tell them apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from xxhash import xxh3_64_intdigest

#: The digest that stands before the first event, and before every row of another table.
NONE = 0


def digest_of(values: Iterable[Any], before: int) -> int:
    """Return the digest of ``values`` after the digest ``before``, a signed 64-bit number.

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
    """Return the name of a row in messages."""
    return f"row {', '.join(keys)} of table {table}"


def first_fault(
    table: str,
    rows: Iterable[Sequence[Any]],
    covered: slice = slice(0, -1),
    named: Callable[[Sequence[Any]], str] | None = None,
) -> str | None:
    """Return a message about the first of ``rows`` that is not as it was written; None if all are.

    ``covered`` are the columns that the digest covers, which it follows. The digest of an event is
    followed by that of the event before it. ``named`` gives the name of a row in messages; it is
    not needed where the key of ``table`` is the first column.
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
