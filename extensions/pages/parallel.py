"""Draws parallel coordinates: each trial is a line across axes of its parameters and results.

The report's chart generates code in the browser, which the pages' policy forbids. So only the axes
come from the report (``parameter_figures``), and the lines are drawn here as SVG.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from ...app.common.text import number
from ...app.show.drawings.charts import shade
from ...app.show.drawings.svg import drawing, element
from ..report import parameter_figures

if TYPE_CHECKING:
    from ...app.ledger.rows import StudyRow, TrialRow

#: Pixels: the height of the drawing, the space above and below its axes, and the space at its
#: sides.
HEIGHT, TOP, FOOT, SIDE = 300, 44, 14, 70
#: Pixels from one axis to the next.
APART = 150
#: The most ticks of an axis that are labelled. If an axis has more ticks, some labels are left out.
TICKS = 8


def parallel_part(study: StudyRow, trials: Sequence[TrialRow]) -> Markup:
    """Return the drawing of ``trials``, with the line of the best trial on top.

    The result is empty if fewer than two trials have a result.
    """
    figure = parameter_figures.parallel(study, trials)
    if figure is None:
        return Markup()
    [trace] = figure["data"]
    axes, shares = trace["dimensions"], trace["line"]["color"]
    width = 2 * SIDE + APART * (len(axes) - 1)
    columns = [[_height(axis, value) for value in axis["values"]] for axis in axes]
    lines = [
        element("polyline", points=_points(heights), stroke=shade(share), stroke_opacity="0.7")
        for heights, share in zip(zip(*columns, strict=True), shares, strict=True)
    ]
    marks = [mark for index, axis in enumerate(axes) for mark in _axis(axis, SIDE + APART * index)]
    title = f"{len(lines)} trials by {', '.join(axis['label'] for axis in axes)}"
    return drawing(
        f"0 0 {width} {HEIGHT}", [*lines, *marks], title, f"min-width:{width * 2 // 3}px"
    )


def _points(heights: Sequence[float]) -> str:
    return " ".join(f"{SIDE + APART * index},{y:.1f}" for index, y in enumerate(heights))


def _bounds(axis: dict[str, Any]) -> tuple[float, float]:
    low, high = axis.get("range") or (min(axis["values"]), max(axis["values"]))
    return low, high


def _height(axis: dict[str, Any], value: float) -> float:
    """Return the y of a value on its axis, in pixels from the top of the drawing.

    If all values of the axis are equal, the result is the middle of the axis.
    """
    low, high = _bounds(axis)
    share = (value - low) / (high - low) if high > low else 0.5
    return HEIGHT - FOOT - share * (HEIGHT - TOP - FOOT)


def _axis(axis: dict[str, Any], x: int) -> list[Markup]:
    """Return the drawing of an axis at ``x`` (pixels).

    The drawing has the axis's line, its name above the line, and labels at its ticks.
    """
    ends = _bounds(axis)
    ticks = axis.get("tickvals") or ends
    words = axis.get("ticktext") or [number(end, 3) for end in ends]
    is_labelled = [index % -(-len(ticks) // TICKS) == 0 for index in range(len(ticks))]
    return [
        element("line", x1=x, x2=x, y1=TOP, y2=HEIGHT - FOOT, class_="axis"),
        element("text", axis["label"], x=x, y=TOP - 22, class_="m h"),
        *(
            element("text", word, x=x + 6, y=_height(axis, tick) + 4)
            for word, tick in compress(zip(words, ticks, strict=True), is_labelled)
        ),
    ]
