"""A simulation for the terminal: one row a policy, and what was assumed."""

from __future__ import annotations

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from .simulation import Simulation
from .standing import count, duration


def simulation_view(of: Simulation) -> RenderableType:
    """The table, with what it is of above and what was assumed below."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("policy", no_wrap=True)
    several = len(of.workload.studies) > 1
    titles = ["makespan", "/ bound", "busy", "completion", *(["response"] if several else [])]
    for title in (*titles, "resizes"):
        table.add_column(title, justify="right", no_wrap=True)
    for each in of.outcomes:
        table.add_row(
            each.policy,
            duration(each.makespan),
            f"{each.ratio:.3f}",
            f"{each.utilisation:.0%}",
            duration(each.completion),
            *([duration(each.response)] if several else []),
            str(each.resizes),
        )
    notes = [f"assumed: {each}" for each in of.notes()]
    heads = [headline(of), *([of.workload.about] if of.workload.about else [])]
    return Group(*map(Text, heads), table, *(Text(each, "dim") for each in notes))


def headline(of: Simulation) -> str:
    """One line: simulated, and what of."""
    studies = of.workload.studies
    trials = sum(len(study.trials) for study in studies)
    much = count(trials, "trial")
    if len(studies) > 1:
        much += f" of {len(studies)} studies"
    knows = "policies know the speed curves" if of.known else "policies learn the speed curves"
    return f"simulated: {of.workload.name}, {much}, on {count(len(of.devices), 'device')}; {knows}"
