"""Computes the digest of a row (``digests`` says what it is for). It imports no SQLAlchemy.

A value has the same digest when written and when read, on both databases. 1 and 1.0 count as one
number, and so do 0.0 and -0.0, because SQLite does not tell them apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from xxhash import xxh3_64_intdigest

#: The digest that stands before the first event, and before every row of another table.
NONE = 0


def digest_of(values: Iterable[Any], before: int) -> int:
    """The digest, a signed 64-bit number. Values are joined by NUL, which no text contains."""
    text = "\0".join([v if v.__class__ is str else _text(v) for v in values])
    return xxh3_64_intdigest(text.encode(), before & 0xFFFF_FFFF_FFFF_FFFF) - (1 << 63)


def _text(value: Any) -> str:
    if value.__class__ is bool or (value.__class__ is float and value.is_integer()):
        value = int(value)
    return f"\1{value!r}"


def row_name(table: str, keys: Iterable[str]) -> str:
    """The name of a row in messages."""
    return f"row {', '.join(keys)} of table {table}"


def first_fault(table: str, rows: Iterable[Sequence[Any]]) -> str | None:
    """A message about the first of ``rows`` that is not as it was written; None if all are.

    They are whole rows of a table whose key is its first column and whose digest covers all others.
    """
    for row in rows:
        if digest_of(row[:-1], NONE) != row[-1]:
            return f"{row_name(table, [str(row[0])])} is not what was written"
    return None
