"""Writes a simulation as one HTML file: for each policy who held which device and who waited.

The page's frame (style, footer) is that of reports. Its charts are SVG, so it needs no library.
"""

from __future__ import annotations

from datetime import UTC, datetime
from html import escape
from pathlib import Path

from ...app.common.atomic_file import write_atomic
from ...app.common.text import count, duration
from ...app.drawings.charts import STUDIES
from ...app.drawings.page import Markup, page, pairs
from .gantt import busy, colour, colours, gantt
from .outcome import ExperimentResult, Simulation
from .table import headline
from .waits import MAX_LANES, waits_chart


def write_simulation(simulation: Simulation, path: Path) -> Path:
    """Write the page to ``path`` (its folder is created). UsageError if that cannot be done."""
    write_atomic(path, render(simulation, datetime.now(UTC)), "report")
    return path


def render(simulation: Simulation, now: datetime) -> str:
    """The page as text; ``now`` is when it was created."""
    longest = max(each.makespan for each in simulation.outcomes)
    sections = [
        f'<section id="gantt{index}"><div class="head"><h2>{escape(each.policy)}</h2>'
        f"<p>{_sentence(each)}</p></div>{gantt(simulation, each, longest)}"
        f"{_waits(simulation, each, longest)}</section>"
        for index, each in enumerate(simulation.outcomes)
    ]
    work = simulation.workload
    notes = [*([work.about] if work.about else []), *simulation.notes()]
    parts = {
        "title": f"{escape(work.name)}, simulated · Penstock",
        "name": escape(work.name),
        "lead": escape(headline(simulation)),
        "legend": _legend(simulation),
        "bars": _bars(simulation),
        "busy": busy(simulation, longest),
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
    return page(Path(__file__).with_name("simulation.html"), parts, {}, now)


def _sentence(of: ExperimentResult) -> str:
    return (
        f"{duration(of.makespan)}, {of.ratio:.3f} times the bound; {of.utilisation:.0%} busy,"
        f" {count(of.resizes, 'resize')}"
    )


def _waits(simulation: Simulation, of: ExperimentResult, longest: float) -> str:
    """The chart of who waited for whom, with a sentence above it; empty if nobody waited."""
    chart = waits_chart(simulation, of, longest)
    if not chart:
        return ""
    many = sum(len(study.trials) for study in simulation.workload.studies) > MAX_LANES
    whose = f"The {MAX_LANES} trials that waited longest" if many else "Trials"
    return (
        f"<h3>Who waited for whom</h3><p>{whose}, in order of arrival. A thick bar is a trial at"
        " work. A thin one is a trial that waits, in the colour of who ran on the device that it"
        f" then got; under the pointer it says why.</p>{chart}"
    )


def _legend(simulation: Simulation) -> str:
    return "".join(
        _swatch(colour(index), each.policy) for index, each in enumerate(simulation.outcomes)
    )


def _swatch(colour_of: str, name: str) -> str:
    mark = f'<b class="swatch" style="background:{colour_of}"></b>'
    return f'<span class="legend"><span>{mark}{escape(name)}</span></span>'


def _bars(simulation: Simulation) -> str:
    """A sentence about the meaning of the bars' colours and numbers."""
    chosen, studies = colours(simulation), simulation.workload.studies
    if len(studies) == 1:
        return "Bars are trials, with their numbers."
    swatches = "".join(
        _swatch(chosen[each.spec.id], each.spec.name) for each in studies[: len(STUDIES)]
    )
    more = " and so on, again from the first" if len(studies) > len(STUDIES) else ""
    return f"Bars are trials, with their numbers, coloured by study: {swatches}{more}"


def _table(simulation: Simulation) -> str:
    titles = (
        *("policy", "makespan", "over the bound", "busy", "start delay", "waiting", "completion"),
        *("p50", "p95", "response", "slowdown"),
    )
    limited = any(each.memory is not None for each in simulation.outcomes)
    last = ("resizes", "memory", "out of memory") if limited else ("resizes",)
    head = "".join(f"<th>{title}</th>" for title in (*titles, *last))
    rows = "".join(
        f"<tr><td>{escape(each.policy)}</td><td>{duration(each.makespan)}</td>"
        f"<td>{each.ratio:.3f}</td><td>{each.utilisation:.0%}</td>"
        f"<td>{duration(each.delays.start)}</td><td>{duration(each.delays.waiting)}</td>"
        f"<td>{duration(each.completion)}</td><td>{duration(each.ended.median)}</td>"
        f"<td>{duration(each.ended.p95)}</td><td>{duration(each.response)}</td>"
        f"<td>{each.ended.slowdown:.2f}</td><td>{each.resizes}</td>"
        + (
            ""
            if each.memory is None
            else f"<td>{each.memory:.0%}</td><td>{each.out_of_memory}</td>"
        )
        + "</tr>"
        for each in simulation.outcomes
    )
    return f'<div class="scroll"><table><tr>{head}</tr>{rows}</table></div>'
