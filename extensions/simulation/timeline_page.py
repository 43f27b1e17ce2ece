"""Writes a simulation to one HTML file, with charts of devices and of waiting for each policy.

The page has the same style and footer as reports. Its charts are SVG, so the page needs no chart
library.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from ...app.common.atomic_file import write_atomic
from ...app.common.text import duration
from ...app.show.drawings.charts import STUDIES
from ...app.show.drawings.columns import Column
from ...app.show.drawings.page import page
from .gantt import busy, colour, colours, gantt
from .outcome import ExperimentResult, Simulation
from .table import headline
from .waits import MAX_LANES, waits_chart


def write_simulation(simulation: Simulation, path: Path) -> Path:
    """Write the page to ``path`` and return ``path``. Missing folders on the way are created.

    Raises UsageError if the page cannot be written.
    """
    write_atomic(path, render(simulation, datetime.now(UTC)), "report")
    return path


def render(simulation: Simulation, now: datetime) -> str:
    """Return the page of a simulation as HTML; ``now`` is the time of its creation."""
    outcomes, work, colour_of = simulation.outcomes, simulation.workload, colours(simulation)
    longest = max(each.makespan for each in outcomes)
    many = sum(len(study.trials) for study in work.studies) > MAX_LANES
    several = len(work.studies) > 1
    return page(
        "simulation/simulation.html",
        {},
        now,
        work=work,
        lead=headline(simulation),
        outcomes=outcomes,
        columns=_columns(limited=any(each.memory is not None for each in outcomes)),
        policies=[(colour(index), each.policy) for index, each in enumerate(outcomes)],
        studies=[(colour_of[e.spec.id], e.spec.name) for e in work.studies if several],
        distinct=len(STUDIES),
        busy=busy(simulation, longest),
        charts_of=[
            (each, gantt(simulation, each, longest), waits_chart(simulation, each, longest))
            for each in outcomes
        ],
        whose=f"The {MAX_LANES} trials that waited longest" if many else "Trials",
        notes=[*([work.about] if work.about else []), *simulation.notes()],
        facts={
            "Devices": len(simulation.devices),
            "A resize": duration(work.resize),
            "A segment's beginning": duration(work.overhead),
            "Speed curves": "known" if simulation.known else "learned, as in a real run",
        },
    )


def _columns(*, limited: bool) -> list[Column[ExperimentResult]]:
    columns: list[Column[ExperimentResult]] = [
        Column("policy", lambda each: each.policy),
        Column("makespan", lambda each: duration(each.makespan)),
        Column("over the bound", lambda each: f"{each.ratio:.3f}"),
        Column("busy", lambda each: f"{each.utilisation:.0%}"),
        Column("start delay", lambda each: duration(each.delays.start)),
        Column("waiting", lambda each: duration(each.delays.waiting)),
        Column("completion", lambda each: duration(each.completion)),
        Column("p50", lambda each: duration(each.ended.median)),
        Column("p95", lambda each: duration(each.ended.p95)),
        Column("response", lambda each: duration(each.response)),
        Column("slowdown", lambda each: f"{each.ended.slowdown:.2f}"),
        Column("resizes", lambda each: each.resizes),
    ]
    if limited:
        columns += [
            Column("memory", lambda each: None if each.memory is None else f"{each.memory:.0%}"),
            Column("out of memory", lambda each: each.out_of_memory),
        ]
    return columns
