"""The columns of a table, which ``pieces.html`` renders."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class Column(Generic[Row]):
    """A column: its title, and the function that returns a row's cell: text, ``Markup`` or None.

    None is shown as a dash. ``kind`` is the column's CSS class, ``n`` for numbers. If rows can be
    sorted, they are sorted by ``key`` (None comes last), and ``first`` is the direction of the
    first click.
    """

    title: str
    show: Callable[[Row], object]
    kind: str = ""
    key: Callable[[Row], object] = lambda _: None
    first: str = "ascending"

    def sort_key(self, row: Row) -> object:
        """Return the sort key of a row; an empty text if the row has none."""
        key = self.key(row)
        absent = key is None or (isinstance(key, float) and not math.isfinite(key))
        return "" if absent else key
