"""Prints a simulation on the terminal: two tables with a row for each policy, then assumptions."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ...app.common.console import PlainConsole
from ...app.common.text import count, duration
from .outcome import Simulation


def simulation_view(of: Simulation) -> RenderableType:
    """Return the tables of a simulation, with a headline above and the assumptions below."""
    several = len(of.workload.studies) > 1
    limited = any(each.memory is not None for each in of.outcomes)
    further = ["response"] * several + ["resizes"] + ["memory", "out of it"] * limited
    devices = _table("makespan", "/ bound", "busy", *further)
    trials = _table("to start", "waiting", "completion", "p50", "p95", "slowdown")
    for each in of.outcomes:
        devices.add_row(
            each.policy,
            duration(each.makespan),
            f"{each.ratio:.3f}",
            f"{each.utilisation:.0%}",
            *([duration(each.response)] if several else []),
            str(each.resizes),
            *([f"{each.memory:.0%}", str(each.out_of_memory)] if each.memory is not None else []),
        )
        trials.add_row(
            each.policy,
            duration(each.delays.start),
            duration(each.delays.waiting),
            duration(each.completion),
            duration(each.ended.median),
            duration(each.ended.p95),
            f"{each.ended.slowdown:.2f}",
        )
    notes = [f"assumed: {each}" for each in of.notes()]
    heads = [headline(of), *([of.workload.about] if of.workload.about else [])]
    below = (Text(each, "dim") for each in notes)
    tables = (devices, Text(), trials)
    return Group(*map(Text, heads), Text(), *tables, *([Text(), *below] if notes else []))


def _table(*titles: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    table.add_column("policy", overflow="fold")
    for title in titles:
        table.add_column(title, justify="right", no_wrap=True)
    return table


def headline(of: Simulation) -> str:
    """Return one line with the name of the workload and the numbers of trials and devices."""
    studies = of.workload.studies
    trials = sum(len(study.trials) for study in studies)
    much = count(trials, "trial")
    if len(studies) > 1:
        much += f" of {len(studies)} studies"
    knows = ", curves known" if of.known else ""
    return f"simulated: {of.workload.name}, {much}, on {count(len(of.devices), 'device')}{knows}"


class Progress:
    """A line on standard error that shows the progress of a simulation.

    The line is shown only if standard error is a terminal.
    """

    def __init__(self) -> None:
        self._status = PlainConsole(stderr=True, highlight=False).status("")

    def __enter__(self) -> Progress:
        self._status.__enter__()
        return self

    def __exit__(self, *given: object) -> None:
        self._status.stop()

    def tell(self, policy: str, now: float, epochs: int) -> None:
        """Show that the simulation of ``policy`` has reached ``now`` (simulated seconds)."""
        much = f"{duration(now)} of simulated time, {count(epochs, 'epoch')}"
        self._status.update(f"simulating {policy}: {much}")
