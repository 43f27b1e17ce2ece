"""Draws the tree of a study's prefixes as SVG, with epochs to the right and one row for each leaf.

A bar is an edge. It is thicker if more trials have its epochs, and it has the strong colour if
several have them. Text and lines have the colours of the page (``.drawn`` in its style).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import sqrt
from typing import TYPE_CHECKING

from markupsafe import Markup

from ...app.common.text import count, number
from ...app.show.drawings.svg import drawing, element

if TYPE_CHECKING:
    from .tree import Edge

#: Pixels: width of the picture; space left and right of the bars; height of a row with and without
#: labels, and of the axis below; thickness of a bar of one trial, and of the thickest bar.
WIDTH, LEFT, RIGHT, LABELLED, PLAIN, AXIS, THIN, THICK = 900, 12, 90, 26, 5, 34, 3.0, 10.0
#: The most rows for which there are labels, and the most rows that are drawn.
MAX_LABELLED, MAX_ROWS = 60, 400
#: The width of a label's letter (pixels), and the most letters of a label.
LETTER, LONGEST = 6.2, 40
SHARED, ALONE = "#3070d6", "#4aaa9e"


def tree_picture(edges: Sequence[Edge]) -> Markup:
    """Return the tree as ``svg``, with a remark if it is cut; empty if there are no edges."""
    if not edges:
        return Markup()
    visible, hidden = _cut(edges)
    rows = _rows(visible)
    leaves = 1 + max(map(round, rows))
    step = LABELLED if leaves <= MAX_LABELLED else PLAIN
    longest = max(edge.until for edge in visible)
    most = max(len(edge.ways) for edge in visible)

    def x(epoch: int) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * epoch / longest

    def y(index: int) -> float:
        return step * (rows[index] + 0.6)

    bottom = step * leaves + 8
    parts = [*_axis(longest, x, bottom)]
    for index, edge in enumerate(visible):
        if edge.above is not None:
            way = f"M{x(edge.after):.1f} {y(edge.above):.1f}V{y(index):.1f}"
            parts.append(
                element("path", d=way, fill="none", stroke="currentColor", stroke_opacity=".4")
            )
    for index, edge in enumerate(visible):
        thickest = THICK if step == LABELLED else PLAIN - 1
        thick = max(THIN if step == LABELLED else 1.5, thickest * sqrt(len(edge.ways) / most))
        left, right = x(edge.after) + 1, x(edge.until) - 1
        colour = SHARED if len(edge.ways) > 1 else ALONE
        parts.append(
            element(
                "rect",
                element("title", _words(edge)),
                x=left,
                y=y(index) - thick / 2,
                width=right - left,
                height=thick,
                rx=1,
                fill=colour,
            )
        )
        if step == LABELLED:
            parts += _labels(edge, left, right, y(index), thick)
    if hidden:
        cut = f"and {count(hidden, 'edge')} more, not drawn"
        parts.append(_text(WIDTH - 4, bottom + 27, cut, "e"))
    title = f"the tree of prefixes: {count(len(edges), 'edge')} over {count(longest, 'epoch')}"
    return drawing(f"0 0 {WIDTH} {bottom + AXIS}", parts, title)


def _cut(edges: Sequence[Edge]) -> tuple[list[Edge], int]:
    """Return the first edges, with up to ``MAX_ROWS`` leaves, and the number of edges left out."""
    inner = {edge.above for edge in edges}
    leaves = 0
    for index in range(len(edges)):
        leaves += index not in inner
        if leaves > MAX_ROWS:
            return list(edges[:index]), len(edges) - index
    return list(edges), 0


def _rows(edges: Sequence[Edge]) -> list[float]:
    """Return each edge's row: a row of its own for a leaf, or the middle of the edges below it."""
    below: list[list[int]] = [[] for _ in edges]
    for index, edge in enumerate(edges):
        if edge.above is not None:
            below[edge.above].append(index)
    rows, row = [0.0] * len(edges), 0
    for index, children in enumerate(below):
        if not children:
            rows[index], row = row, row + 1
    for index in reversed(range(len(edges))):
        if below[index]:
            rows[index] = (rows[below[index][0]] + rows[below[index][-1]]) / 2
    return rows


def _labels(edge: Edge, left: float, right: float, y: float, thick: float) -> Iterable[Markup]:
    """Yield labels with the new values and the number of trials, as far as there is space.

    The number of a single trial is written after the bar.
    """
    parts = [f"{name} {number(value, 3)}" for name, value in edge.entering]
    parts += [count(len(edge.ways), "trial")] if len(edge.ways) > 1 else []
    words = "  ".join(parts)
    letters = min(LONGEST, int((right - left) / LETTER))
    label = words if len(words) <= letters else words[: max(0, letters - 1)] + "…"
    if len(label) > 1:
        yield _text(left + 2, y - thick / 2 - 2, label)
    if len(edge.ways) == 1:
        yield _text(right + 5, y + 4, f"trial {edge.ways[0].number}")


def _words(edge: Edge) -> str:
    numbers = [way.number for way in edge.ways]
    subject = f"trial {numbers[0]}" if len(numbers) == 1 else count(len(numbers), "trial")
    values = ", ".join(f"{name} = {number(value)}" for name, value in edge.entering)
    return f"epochs {edge.after + 1} to {edge.until} of {subject}" + (
        f": {values}" if values else ""
    )


def _axis(longest: int, x: Callable[[int], float], bottom: float) -> Iterable[Markup]:
    every = max(1, -(-longest // 12))
    for epoch in (*range(0, longest, every), longest):
        if epoch == longest or longest - epoch >= every / 2:
            yield element("line", x1=x(epoch), y1=0, x2=x(epoch), y2=bottom)
            yield _text(x(epoch), bottom + 13, str(epoch), "m")
    yield _text(LEFT, bottom + 27, "epochs")


def _text(x: float, y: float, text: str, kind: str = "") -> Markup:
    return element("text", text, x=x, y=y, class_=kind)
