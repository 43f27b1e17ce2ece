"""The best trial of a study: its value, how it was made, and where its state lies."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ..profiling.errors import UsageError
from .standing import best_of, final_metrics, number, reached, so_far

if TYPE_CHECKING:
    from .queries import Reader, StudyRow


def best_facts(reader: Reader, study: StudyRow) -> dict[str, Any]:
    """The best trial, as ``standing.best_of`` says. UsageError where no trial has a value.

    ``checkpoint`` is its newest state in the store: after which epoch, and where; None where there
    is none (an objective has none). A metric that is no number is None.
    """
    trials = reader.trials(study.id)
    best = best_of(study, trials)
    if best is None:
        raise UsageError(f"no trial of {study.name} has a value yet, of {len(trials)}")
    metrics = final_metrics(best, reader.epochs(study.id))
    states = [state for state in reader.durables(study.id) if state.trial == best.id]
    newest = max(states, key=lambda state: state.epoch, default=None)
    return {
        "study": study.name,
        "status": study.status,
        "metric": study.metric,
        "direction": study.direction,
        "trial": best.number,
        "id": best.id,
        "reached": reached(best),
        "epoch": best.epoch,
        "value": best.value,
        "params": best.params,
        "metrics": {n: v if math.isfinite(v) else None for n, v in metrics.items()},
        "checkpoint": newest and {"epoch": newest.epoch, "uri": newest.uri},
        "so_far": bool(so_far(study)),
    }


def best_view(facts: dict[str, Any]) -> RenderableType:
    """The same for people."""
    words = "best trial so far" if facts["so_far"] else "best trial"
    head = Text.assemble(
        (facts["study"], "bold"),
        f" {facts['status']}: {words} {facts['trial']}, {facts['metric']} ",
        (number(facts["value"]), "bold green"),
        (f"  ({facts['reached']})", "dim"),
    )
    grid = Table.grid(padding=(0, 3, 0, 0))
    for title, values in (("parameters", facts["params"]), ("metrics", facts["metrics"])):
        for at, (name, value) in enumerate(values.items()):
            shown = "no number" if value is None and title == "metrics" else number(value)
            grid.add_row(Text("" if at else f"  {title}", style="dim"), Text(name), Text(shown))
    state = facts["checkpoint"]
    where = "none in the store" if state is None else f"epoch {state['epoch']}  {state['uri']}"
    return Group(head, grid, Text.assemble(("  checkpoint  ", "dim"), where))
