"""A simulation as one HTML file: for each policy who held which device when, and how many did.

The page's frame (style, charts, footer) is the report's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from itertools import groupby
from pathlib import Path

from ..scheduler.study import number_of
from ..scheduler.trial import AcceptedEpoch
from .charts import STUDIES, Figure, lanes_height, unit_of
from .charts import escape as escape_label
from .fragments import Markup, pairs
from .page import page
from .simulation import Outcome, Simulation
from .simulation_view import headline
from .standing import count, duration
from .whole_file import write_whole

#: Points of a curve of busy devices.
_POINTS = 400
#: (trial, its segment's fence, device, begin and end in seconds)
Span = tuple[str, int, str, float, float]


def write_simulation(simulation: Simulation, path: Path) -> Path:
    """Write the page to ``path`` (its folder is made). UsageError where that cannot be done."""
    write_whole(path, render(simulation, datetime.now(UTC)), "report")
    return path


def render(simulation: Simulation, now: datetime) -> str:
    """The page as text; ``now`` is when it was made."""
    longest = max(each.makespan for each in simulation.outcomes)
    charts = {"busy": busy(simulation, longest)}
    sections = []
    for place, each in enumerate(simulation.outcomes):
        charts[f"gantt{place}"] = gantt(simulation, each, longest)
        sections.append(
            f'<section id="gantt{place}"><div class="head"><h2>{escape(each.policy)}</h2>'
            f"<p>{_sentence(each)}</p></div>"
            f'<div class="chart" data-figure="gantt{place}"></div></section>'
        )
    work = simulation.workload
    notes = [*([work.about] if work.about else []), *simulation.notes()]
    parts = {
        "title": f"{escape(work.name)}, simulated · Penstock",
        "name": escape(work.name),
        "lead": escape(headline(simulation)),
        "legend": _legend(simulation),
        "gantts": "".join(sections),
        "table": _table(simulation),
        "notes": "".join(f"<li>{escape(note)}</li>" for note in notes) or "<li>nothing</li>",
        "facts": pairs(
            {
                "Devices": str(len(simulation.devices)),
                "A resize": Markup(duration(work.resize)),
                "A segment's beginning": Markup(duration(work.overhead)),
                "Speed curves": "known" if simulation.known else "learned, as in a real run",
            }
        ),
    }
    return page("simulation.html", parts, charts, now)


def spans(epochs: Iterable[AcceptedEpoch]) -> list[Span]:
    """Who held what when: epochs of one segment that followed each other are one span a device."""
    order = sorted(epochs, key=lambda row: (row.trial, row.epoch))
    found: list[Span] = []
    for (trial, fence), rows in groupby(order, key=lambda row: (row.trial, row.fence)):
        run = list(rows)
        begin, end = run[0].at - run[0].seconds, run[-1].at
        found += [(trial, fence, member.device, begin, end) for member in run[0].members]
    return found


def gantt(simulation: Simulation, outcome: Outcome, longest: float) -> Figure:
    """A lane a device and a bar a span; the axis ends at ``longest`` (seconds), for all alike."""
    scale, unit = unit_of(longest)
    several = len(simulation.workload.studies) > 1
    names = {study.spec.id: study.spec.name for study in simulation.workload.studies}
    bars = spans(outcome.epochs)
    colour = colours(simulation)
    lanes = [device.name for device in simulation.devices]
    trace = {
        "type": "bar",
        "orientation": "h",
        "base": [round(begin / scale, 6) for *_, begin, _ in bars],
        "x": [round((end - begin) / scale, 6) for *_, begin, end in bars],
        "y": [device for _, _, device, _, _ in bars],
        "text": [str(number_of(trial)) for trial, *_ in bars],
        "textposition": "inside",
        "insidetextanchor": "middle",
        "textangle": 0,
        "customdata": [
            (f"{escape_label(names[_study(trial)])}, " if several else "")
            + f"trial {number_of(trial)}<br>{begin / scale:.4g} to {end / scale:.4g} {unit}"
            for trial, _, _, begin, end in bars
        ],
        "hovertemplate": "%{customdata}<extra></extra>",
        "marker": {
            "color": [colour[trial if not several else _study(trial)] for trial, *_ in bars]
        },
    }
    layout = {
        "xaxis": {
            "title": {"text": f"simulated time ({unit})"},
            "range": [0, 1.01 * longest / scale],
        },
        "yaxis": {
            "type": "category",
            "categoryorder": "array",
            "categoryarray": lanes[::-1],
        },
        "height": lanes_height(len(lanes)),
        "bargap": 0.22,
        "barmode": "overlay",
        "hovermode": "closest",
        "uniformtext": {"minsize": 9, "mode": "hide"},
    }
    return {"data": [trace], "layout": layout}


def busy(simulation: Simulation, longest: float) -> Figure:
    """Devices at work over time, a line a policy: means over parts of the time, which are equal."""
    scale, unit = unit_of(longest)
    width = longest / _POINTS
    at = [round((place + 0.5) * width / scale, 6) for place in range(_POINTS)]
    traces = []
    for place, outcome in enumerate(simulation.outcomes):
        held = shares(spans(outcome.epochs), longest, _POINTS)
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": outcome.policy,
                "x": at,
                "y": [round(each, 4) for each in held],
                "line": {"width": 1.6, "color": _colour(place)},
                "hovertemplate": f"{outcome.policy}: %{{y:.3g}} devices<extra></extra>",
            }
        )
    layout = {
        "xaxis": {"title": {"text": f"simulated time ({unit})"}},
        "yaxis": {
            "title": {"text": "devices at work"},
            "range": [0, 1.05 * len(simulation.devices)],
        },
        "height": 300,
        "hovermode": "x unified",
    }
    return {"data": traces, "layout": layout}


def shares(held: Sequence[Span], longest: float, parts: int) -> list[float]:
    """Devices held on average in each of ``parts`` equal parts of the time up to ``longest``."""
    width = longest / parts
    found = [0.0] * parts
    for *_, begin, end in held:
        first, last = int(begin / width), min(parts - 1, int(end / width))
        for part in range(first, last + 1):
            inside = min(end, (part + 1) * width) - max(begin, part * width)
            found[part] += max(0.0, inside) / width
    return found


def colours(simulation: Simulation) -> dict[str, str]:
    """Colours by study id where there are several studies, else by trial id."""
    studies = simulation.workload.studies
    if len(studies) > 1:
        order = [study.spec.id for study in studies]
    else:
        order = sorted({row.trial for each in simulation.outcomes for row in each.epochs})
    return {name: _colour(place) for place, name in enumerate(order)}


def _colour(place: int) -> str:
    return STUDIES[place % len(STUDIES)]


def _study(trial: str) -> str:
    return trial.rpartition("-")[0]


def _sentence(of: Outcome) -> str:
    return (
        f"{duration(of.makespan)}, {of.ratio:.3f} times the bound; {of.utilisation:.0%} busy,"
        f" {count(of.resizes, 'resize')}"
    )


def _legend(simulation: Simulation) -> str:
    return "".join(
        f'<span class="legend"><span><b class="swatch" style="background:{_colour(place)}">'
        f"</b>{escape(each.policy)}</span></span>"
        for place, each in enumerate(simulation.outcomes)
    )


def _table(simulation: Simulation) -> str:
    titles = ("policy", "makespan", "over the bound", "busy", "mean completion", "mean response")
    head = "".join(f"<th>{title}</th>" for title in (*titles, "resizes"))
    rows = "".join(
        f"<tr><td>{escape(each.policy)}</td><td>{duration(each.makespan)}</td>"
        f"<td>{each.ratio:.3f}</td><td>{each.utilisation:.0%}</td>"
        f"<td>{duration(each.completion)}</td><td>{duration(each.response)}</td>"
        f"<td>{each.resizes}</td></tr>"
        for each in simulation.outcomes
    )
    return f'<div class="scroll"><table><tr>{head}</tr>{rows}</table></div>'
