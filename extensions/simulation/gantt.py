"""Draws a simulation's charts as SVG: the trials on each device over time, and the busy devices.

The charts need no library. The description of a bar is its ``title`` element, which browsers show
under the pointer. The page (``frame.html``) sets the colours of text and lines, light or dark.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import groupby, repeat

from markupsafe import Markup

from ...app.common.text import number
from ...app.show.drawings.charts import STUDIES, WIDE_LANES, unit_of
from ...app.show.drawings.svg import drawing, element, titled
from ...app.show.views.delays import epoch_spans
from ...profiling.devices.device import Device
from ...scheduler.model.study import number_of
from ...scheduler.model.trial import AcceptedEpoch
from .experiment import occupied
from .outcome import ExperimentResult, Simulation

#: Pixels: the width of a chart, the margin right of the plot, the margin below the plot, and the
#: width of a character.
WIDTH, RIGHT, BELOW, CHARACTER = 1140, 12, 40, 6.7
#: Pixels: the height of a lane's row, the height if there are many lanes, and the height of the
#: chart of busy devices.
LANE, NARROW_LANE, BUSY = 26, 14, 220
#: The most bars for which a chart has trial numbers and titles. With more bars, titles would be
#: unreadable and would make up most of the page.
MAX_TITLES = 1000
#: Pixels. A bar is left out if it ends less than this after the bar before, in the same lane and
#: colour.
MIN_BAR = 0.25
#: Pixels. Two spans of one trial on one slot are joined if the gap between them is narrower.
MIN_GAP = 0.5
#: The number of points of each line in the chart of busy devices.
_POINTS = 400
#: The name of a device, and the number of one of its slots.
Slot = tuple[str, int]
#: A trial's id, the fence of the segment, a slot, and begin and end in simulated seconds.
Span = tuple[str, int, Slot, float, float]
#: A trial's id, a slot, and begin and end in simulated seconds.
Held = tuple[str, Slot, float, float]


def spans(epochs: Iterable[AcceptedEpoch], devices: Sequence[Device] = ()) -> list[Span]:
    """Return the times in which trials held slots: one span for each segment and slot.

    An epoch that took turns with other trials in a lane has a span for each of its turns.
    """
    order = sorted(epochs, key=lambda row: (row.trial, row.epoch))
    shared = [row for row in order if row.began is not None]
    trial_spans: list[Span] = []
    alone = (row for row in order if row.began is None)
    for (trial, fence), rows in groupby(alone, key=lambda row: (row.trial, row.fence)):
        run = list(rows)
        begin, end = run[0].at - run[0].seconds, run[-1].at
        trial_spans += [(trial, fence, (m.device, m.slot), begin, end) for m in run[0].members]
    turns = epoch_spans(shared, {device.name: device.seats for device in devices})
    for row, pieces in zip(shared, turns, strict=True):
        trial_spans += [(row.trial, row.fence, (row.device, row.slot), *piece) for piece in pieces]
    return trial_spans


def gantt(simulation: Simulation, outcome: ExperimentResult, longest: float) -> Markup:
    """Return a chart with a row for each slot and a bar for each span in which a trial held it.

    The lower bound of the makespan is a dashed line. The axis ends at ``longest`` (seconds), which
    is the same for all charts of a page.
    """
    lanes = _lanes(simulation)
    left = CHARACTER * max(map(len, lanes.values())) + 12
    lane = LANE if len(lanes) <= WIDE_LANES else NARROW_LANE
    height = lane * len(lanes)
    plot_width = WIDTH - left - RIGHT
    lane_of = {slot: at for at, slot in enumerate(lanes)}
    parts = axis(left, plot_width, height, longest)
    for at, name in enumerate(lanes.values()):
        parts.append(text("e", left - 8, lane * (at + 0.5) + 4, name))
    held_spans = _joined(spans(outcome.epochs, simulation.devices), MIN_GAP * longest / plot_width)
    bars = [
        (
            lane_of[slot],
            left + plot_width * begin / longest,
            plot_width * (end - begin) / longest,
            trial,
        )
        for trial, slot, begin, end in held_spans
    ]
    colour_of = colours(simulation)
    fills = [colour_of[_key(simulation, trial)] for *_, trial in bars]
    if len(bars) > MAX_TITLES:
        parts += _paths(bars, fills, lane)
    else:
        titles = _titles(simulation, held_spans, longest)
        parts += map(_bar, bars, fills, repeat(lane), titles)
    bound = left + plot_width * min(1.0, outcome.bound / longest)
    parts.append(element("line", class_="bound", x1=bound, y1=0, x2=bound, y2=height))
    return svg(height + BELOW, parts, f"who held which device when under {outcome.policy}")


def busy(simulation: Simulation, longest: float) -> Markup:
    """Return a chart of the number of busy devices over time, with a line for each policy.

    The time axis ends at ``longest`` (seconds). Each point of a line is the mean over an equal part
    of the axis.
    """
    most = len(simulation.devices)
    left = CHARACTER * len(str(most)) + 20
    plot_width = WIDTH - left - RIGHT
    parts = axis(left, plot_width, BUSY, longest)
    for tick in _ticks(most):
        y = 8 + (BUSY - 8) * (1 - tick / most)
        parts.append(text("e", left - 8, y + 4, number(tick)))
        parts.append(element("line", x1=left, y1=y, x2=WIDTH - RIGHT, y2=y))
    for index, outcome in enumerate(simulation.outcomes):
        busy_devices = shares(spans(outcome.epochs, simulation.devices), longest, _POINTS)
        line = " ".join(
            f"{left + plot_width * (at + 0.5) / _POINTS:.0f},"
            f"{8 + (BUSY - 8) * (1 - each / most):.1f}"
            for at, each in enumerate(busy_devices)
        )
        title = element("title", outcome.policy)
        parts.append(element("polyline", title, points=line, stroke=colour(index)))
    return svg(BUSY + BELOW, parts, "devices at work over simulated time")


def shares(held: Sequence[Span], longest: float, parts: int) -> list[float]:
    """Return the mean number of busy devices in ``parts`` equal parts of ``longest`` seconds.

    A device that several trials share is counted once.
    """
    width = longest / parts
    means = [0.0] * parts
    for begin, end in occupied((slot[0], begin, end) for *_, slot, begin, end in held):
        first, last = int(begin / width), min(parts - 1, int(end / width))
        for part in range(first, last + 1):
            inside = min(end, (part + 1) * width) - max(begin, part * width)
            means[part] += max(0.0, inside) / width
    return means


def colours(simulation: Simulation) -> dict[str, str]:
    """Return a colour for each study id or, if there is one study only, for each trial id."""
    studies = simulation.workload.studies
    if len(studies) > 1:
        order = [study.spec.id for study in studies]
    else:
        order = sorted({row.trial for each in simulation.outcomes for row in each.epochs})
    return {name: colour(index) for index, name in enumerate(order)}


def colour(index: int) -> str:
    """Return the colour of the policy, study or trial with this index in its list."""
    return STUDIES[index % len(STUDIES)]


def _lanes(simulation: Simulation) -> dict[Slot, str]:
    return {
        (device.name, slot): f"{device.name} · {slot}" if device.slots > 1 else device.name
        for device in simulation.devices
        for slot in range(device.slots)
    }


#: A bar to draw: the index of its lane, its left edge and width in pixels, and the trial's id.
Bar = tuple[int, float, float, str]


def _key(simulation: Simulation, trial: str) -> str:
    """Return the id by which the colour of a trial is looked up in ``colours``.

    This is the id of the trial's study if there are several studies, otherwise the trial's id.
    """
    return trial.rpartition("-")[0] if len(simulation.workload.studies) > 1 else trial


def _joined(held: Iterable[Span], gap: float) -> list[Held]:
    """Join spans of one trial on one slot across gaps of at most ``gap`` seconds."""
    joined: list[Held] = []
    for slot, trial, begin, end in sorted((s, t, begin, end) for t, _, s, begin, end in held):
        if joined and joined[-1][:2] == (trial, slot) and begin - joined[-1][3] <= gap:
            joined[-1] = (trial, slot, joined[-1][2], end)
        else:
            joined.append((trial, slot, begin, end))
    return joined


def _titles(simulation: Simulation, held: Iterable[Held], longest: float) -> list[str]:
    """Return the description of each bar, such as *digits, trial 3, 2 to 4.5 min*.

    ``longest`` (seconds) determines the unit of the times.
    """
    scale, unit = unit_of(longest)
    names = {study.spec.id: f"{study.spec.name}, " for study in simulation.workload.studies}
    several = len(names) > 1
    return [
        (names[trial.rpartition("-")[0]] if several else "")
        + f"trial {number_of(trial)}, {round(begin / scale, 6):.4g} to {end / scale:.4g} {unit}"
        for trial, _, begin, end in held
    ]


def _bar(of: Bar, fill: str, lane: int, title: str) -> Markup:
    lane_index, x, width, trial = of
    name, top = str(number_of(trial)), lane * lane_index
    bar = element("rect", x=x, y=top + 2, width=max(0.3, width - 0.5), height=lane - 4, fill=fill)
    if lane == LANE and width > CHARACTER * len(name) + 4:
        return titled(title, bar, text("in", x + width / 2, top + lane / 2 + 4, name))
    return titled(title, bar)


def _paths(bars: Sequence[Bar], fills: Sequence[str], lane: int) -> list[Markup]:
    """Return many bars as SVG, with one ``path`` element for all bars of a colour."""
    paths: defaultdict[str, list[str]] = defaultdict(list)
    ends: dict[tuple[int, str], float] = {}
    for (lane_index, x, width, _), fill in sorted(zip(bars, fills, strict=True)):
        end = x + width
        if end - ends.get((lane_index, fill), -math.inf) < MIN_BAR:
            continue
        ends[lane_index, fill] = end
        wide = f"{max(0.3, width):.1f}"
        paths[fill].append(f"M{x:.1f} {lane * lane_index + 2}h{wide}v{lane - 4}h-{wide}z")
    return [element("path", d="".join(each), fill=fill) for fill, each in paths.items()]


def axis(left: float, plot_width: float, height: float, longest: float) -> list[Markup]:
    """Return the time axis of a chart: grid lines, numbers, and the unit.

    ``left``, ``plot_width`` and ``height`` are in pixels. ``longest`` is the end of the axis in
    seconds.
    """
    scale, unit = unit_of(longest)
    parts = []
    for tick in _ticks(longest / scale):
        x = left + plot_width * tick * scale / longest
        parts.append(element("line", x1=x, y1=0, x2=x, y2=height))
        parts.append(text("m", x, height + 16, number(tick)))
    parts.append(text("m", left + plot_width / 2, height + 34, f"simulated time ({unit})"))
    return parts


def text(kind: str, x: float, y: float, words: str) -> Markup:
    """Return an SVG text at the point (``x``, ``y``).

    ``kind`` is the CSS class: ``m`` centres the text at the point, ``e`` ends the text there.
    """
    return element("text", words, class_=kind, x=x, y=y)


def _ticks(high: float) -> list[float]:
    """Return round numbers from 0 to at most ``high``, for the ticks of an axis."""
    power = 10.0 ** math.floor(math.log10(high))
    step = next(each * power for each in (0.1, 0.2, 0.5, 1.0) if high / (each * power) <= 10)
    return [index * step for index in range(int(high / step) + 1)]


def svg(height: float, parts: Iterable[Markup], what: str) -> Markup:
    """Return the drawing of ``parts``; ``what`` is the description for screen readers."""
    return drawing(f"0 0 {WIDTH} {height:.0f}", parts, what)
