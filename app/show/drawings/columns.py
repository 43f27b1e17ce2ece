"""The columns of a table that the template ``pieces.html`` renders."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class Column(Generic[Row]):
    """A column of a table: its title, and the function ``show`` that returns the cell of a row.

    A cell is text, ``Markup`` or None, which is shown as a dash. ``kind`` is the CSS class of the
    column, ``n`` for numbers. If users can sort the rows, ``key`` returns the sort key of a row.
    Rows whose key is None come last. ``first`` is the direction of the first click.
    """

    title: str
    show: Callable[[Row], object]
    kind: str = ""
    key: Callable[[Row], object] = lambda _: None
    first: str = "ascending"

    def sort_key(self, row: Row) -> object:
        """Return the sort key of a row.

        An empty text stands for a key that is None or not finite.
        """
        key = self.key(row)
        absent = key is None or (isinstance(key, float) and not math.isfinite(key))
        return "" if absent else key
