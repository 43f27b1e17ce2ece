"""Draw an architecture as SVG: boxes from the input at the top to the output at the bottom.

Theory of operation. Each box is below all boxes that it reads, as far up as possible. In its row it
is centred below the boxes that it reads, as far as its neighbours leave space. A line to the next
row is a curve between the two boxes. A longer line runs down a *rail* to the right of the rows that
it passes. So no line crosses a box. Text and lines have the colours of the page (``.drawn`` in its
style); the colours of choices are translucent, so that they are legible on a light and on a dark
page.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from ....app.show.drawings.svg import drawing, element
from .outline import Box, shortened

#: Pixels: width of a letter, height of a line, margin in a box; distances of boxes, rows and rails.
LETTER, LINE, INSIDE, BESIDE, BETWEEN, RAIL = 6.9, 15.0, 8.0, 18.0, 26.0, 9.0
#: The width of a letter in a box's head, divided by the width of a letter in other text.
BOLD = 1.1
#: The colour of boxes that mutators put there.
MUTATED = "#d55e00"


@dataclass(slots=True)
class _Frame:
    """The position of a box: row, middle of its top edge, size, and right end of its row."""

    row: int
    width: float
    height: float
    x: float = 0.0
    y: float = 0.0
    end: float = 0.0

    @property
    def right(self) -> float:
        return self.x + self.width / 2

    @property
    def left(self) -> float:
        return self.x - self.width / 2

    @property
    def bottom(self) -> float:
        return self.y + self.height


def picture(boxes: Sequence[Box], colours: Mapping[str, str], what: str) -> tuple[Markup, float]:
    """Return the boxes as an ``svg`` element, and the natural width of the picture in pixels.

    There must be at least one box. ``colours`` has the colour of each choice by its label. ``what``
    describes the picture to readers who cannot see it.
    """
    frames = _arranged(boxes)
    rails = _rails(boxes, frames)
    left = min(frame.left for frame in frames) - 4
    right = max([frame.right for frame in frames] + [*rails.values()]) + 4
    bottom = max(frame.bottom for frame in frames) + 4
    edges = [(read, index) for index, box in enumerate(boxes) for read in box.reads]
    parts = [_line(frames[one], frames[other], rails.get((one, other))) for one, other in edges]
    for box, frame in zip(boxes, frames, strict=True):
        parts += _shapes(box, frame, colours.get(box.label, ""))
    view = f"{left:.1f} -4 {right - left:.1f} {bottom + 4:.1f}"
    return drawing(view, parts, what, f"max-width:{right - left:.0f}px"), right - left


def _heads(box: Box) -> list[str]:
    """Return the lines of a box's head: its choice, and the mutators that put it there."""
    by = f"by {box.by}" if box.by else ""
    return [shortened(each) for each in (box.choice, by) if each]


def _arranged(boxes: Sequence[Box]) -> list[_Frame]:
    frames: list[_Frame] = []
    rows: list[list[int]] = []
    for index, box in enumerate(boxes):
        row = 1 + max((frames[each].row for each in box.reads), default=-1)
        heads = _heads(box)
        letters = max([BOLD * len(line) for line in heads] + [len(line) for line in box.lines])
        height = LINE * (len(heads) + len(box.lines)) + INSIDE
        frames.append(_Frame(row, LETTER * letters + 2 * INSIDE, height))
        if row == len(rows):
            rows.append([])
        rows[row].append(index)
    y = 0.0
    for members in rows:
        _beside(members, boxes, frames)
        end = y + max(frames[index].height for index in members)
        for index in members:
            frames[index].y, frames[index].end = y, end
        y = end + BETWEEN
    return frames


def _beside(row: Sequence[int], boxes: Sequence[Box], frames: list[_Frame]) -> None:
    """Set the x of each box in a row, from left to right."""
    aims = {}
    for index in row:
        above = [frames[each].x for each in boxes[index].reads]
        aims[index] = sum(above) / len(above) if above else 0.0
    order = sorted(row, key=lambda index: aims[index])
    edge = -float("inf")
    for index in order:
        frame = frames[index]
        frame.x = max(aims[index], edge + BESIDE + frame.width / 2)
        edge = frame.right
    off = sum(frames[index].x - aims[index] for index in order) / len(order)
    for index in order:
        frames[index].x -= off


def _rails(boxes: Sequence[Box], frames: Sequence[_Frame]) -> dict[tuple[int, int], float]:
    """Return the x of each rail, by the two boxes of its line; shorter lines have inner rails."""
    edges = [
        (read, index)
        for index, box in enumerate(boxes)
        for read in box.reads
        if frames[index].row - frames[read].row > 1
    ]
    rights: dict[int, float] = {}
    for frame in frames:
        rights[frame.row] = max(frame.right, rights.get(frame.row, frame.right))
    rails: dict[tuple[int, int], float] = {}
    rails_so_far: list[tuple[int, int, float]] = []
    for one, other in sorted(edges, key=lambda edge: frames[edge[1]].row - frames[edge[0]].row):
        first, last = frames[one].row, frames[other].row
        x = RAIL + max(rights[row] for row in range(first + 1, last))
        overlapping = sorted(at for top, end, at in rails_so_far if top < last and first < end)
        for at in overlapping:
            if abs(at - x) < RAIL:
                x = at + RAIL
        rails[one, other] = x
        rails_so_far.append((first, last, x))
    return rails


def _line(one: _Frame, other: _Frame, rail: float | None) -> Markup:
    begin, half = one.end, BETWEEN / 2
    if rail is None:
        way = f"C{one.x:.1f} {begin + half:.1f} {other.x:.1f} {other.y - half:.1f}"
    else:
        way = (
            f"C{one.x:.1f} {begin + half:.1f} {rail:.1f} {begin:.1f} {rail:.1f} {begin + half:.1f}"
            f"V{other.y - half:.1f}"
            f"C{rail:.1f} {other.y:.1f} {other.x:.1f} {other.y - half:.1f}"
        )
    path = f"M{one.x:.1f} {one.bottom:.1f}V{begin:.1f}{way} {other.x:.1f} {other.y:.1f}"
    return element("path", d=path, fill="none", stroke="currentColor", stroke_opacity=".45")


def _shapes(box: Box, frame: _Frame, colour: str) -> Iterable[Markup]:
    words = "\n".join([*(each for each in (box.choice, box.by) if each), *box.whole])
    yield element(
        "rect",
        element("title", words),
        x=frame.left,
        y=frame.y,
        width=frame.width,
        height=frame.height,
        rx=4,
        fill=colour or "currentColor",
        fill_opacity=".2" if colour else ".04",
        stroke=MUTATED if box.by else colour or "currentColor",
        stroke_width="2" if box.by else "",
        stroke_dasharray="5 3" if box.by else "",
        stroke_opacity="" if box.by or colour else ".35",
    )
    y, heads = frame.y + LINE - 1, _heads(box)
    for number, line in enumerate([*heads, *box.lines]):
        kind = "m h" if number < len(heads) else "m"
        yield element("text", line, class_=kind, x=frame.x, y=y)
        y += LINE
