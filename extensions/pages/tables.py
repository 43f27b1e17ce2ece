"""Converts tables and text that extensions draw for a terminal into HTML."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from markupsafe import Markup
from rich.console import Group
from rich.table import Table

from ...app.common.console import text_of
from ...app.common.plain import plain
from ...app.show.drawings.columns import Column
from .pieces import part

if TYPE_CHECKING:
    from rich.console import RenderableType


def markup_of(shown: RenderableType) -> Markup:
    """Return a Rich renderable as HTML: a table as a table, and text as a paragraph.

    The parts of a group are converted one by one.
    """
    if isinstance(shown, Group):
        return Markup().join(map(markup_of, shown.renderables))
    if isinstance(shown, Table):
        return _table(shown)
    return Markup("<p>{}</p>").format(text_of(shown, width=10_000).strip())


def _table(table: Table) -> Markup:
    columns: list[Column[Any]] = []
    for index, column in enumerate(table.columns):
        kind = "n" if column.justify == "right" else ""
        columns.append(Column(_text(column.header), partial(_cell, index), kind))
    rows = list(zip(*(column.cells for column in table.columns), strict=True))
    return part("table.html", columns=columns, rows=rows)


def _cell(index: int, row: Sequence[RenderableType]) -> str:
    return _text(row[index])


def _text(cell: RenderableType) -> str:
    return plain(cell) if isinstance(cell, str) else text_of(cell, width=10_000).strip()
