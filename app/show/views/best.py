"""Show a study's best trial or its Pareto front: values, parameters and checkpoints."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ....base.errors import UsageError
from ....tasks.checkpoints.stores import open_store
from ...common.text import number
from ...common.timeouts import within
from ...ledger.summary import front_of, mean_of
from .progress import final_metrics, reached, so_far
from .spending import UNMEASURED, energy_words, joules_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ....scheduler.state.state import DeviceRecord
    from ...ledger.reader import Reader
    from ...ledger.rows import DurableRow, EpochRow, StudyRow, TrialRow

#: The number of seconds within which the checkpoint stores must answer which files exist.
STORE_TIMEOUT = 5.0


def best_facts(reader: Reader, study: StudyRow) -> dict[str, Any]:
    """Return the facts about the best trial, the first trial of ``progress.front_of``.

    With several objectives, ``front`` contains the facts of all trials on the Pareto front. With
    replicates, the facts are those of the first trial of the best configuration. ``mean`` is then
    the mean of that configuration's values, and ``replicates`` contains each value by the number of
    its trial.

    ``checkpoint`` describes the trial's newest checkpoint: the epoch, the URI, and ``gone``.
    ``checkpoint`` is None if the store has no checkpoint of the trial (an objective has none).
    ``gone`` is True if the file does not exist. ``gone`` is None if the store does not answer or if
    the study was imported. The checkpoints of an imported study are not checked, since their URIs
    may be any addresses.

    A metric whose value is not finite is None. ``energy_j`` is the trial's energy in joules, or
    None if the energy of an epoch was not measured. ``energy`` is a sentence about the measured
    energy and about the reasons for gaps. Raises UsageError if no trial has a value or if all
    trials violate a constraint.
    """
    study, trials = reader.with_names(study), reader.trials(study.id)
    front = front_of(study, trials)
    if not front:
        infeasible = sum(not trial.feasible for trial in trials)
        why = (
            f"keeps its constraints, {infeasible} violate one" if infeasible else "has a value yet"
        )
        raise UsageError(f"no trial of {study.name} {why}, of {len(trials)}")
    epochs, durables = reader.epochs(study.id), reader.durables(study.id)
    devices = reader.devices()
    facts = [_trial(trial, epochs, durables, devices) for trial in front]
    states = [fact["checkpoint"] for fact in facts if fact["checkpoint"]]
    missing = {} if reader.imported(study.id) else _gone([state["uri"] for state in states])
    for state in states:
        state["gone"] = missing.get(state["uri"])
    several = {
        "directions": [each.direction for each in study.objectives],
        "metrics_of_front": [each.metric for each in study.objectives],
        "front": facts,
    }
    return {
        "study": study.name,
        "status": study.status,
        "metric": study.metric,
        "metric_name": study.shown_metric,
        "direction": study.direction,
        **facts[0],
        **_replicates(study, front),
        "so_far": bool(so_far(study)),
        **(several if study.further else {}),
    }


def _replicates(study: StudyRow, best: Sequence[TrialRow]) -> dict[str, Any]:
    """Return the mean and the replicates of the best configuration.

    The result is empty if the study has a single replicate.
    """
    if study.replicates == 1:
        return {}
    values = [trial.value or 0.0 for trial in best]
    numbers = [trial.number for trial in best]
    return {"mean": mean_of(best), "replicates": dict(zip(map(str, numbers), values, strict=True))}


def _trial(
    best: TrialRow,
    epochs: Sequence[EpochRow],
    durables: Sequence[DurableRow],
    devices: Sequence[DeviceRecord],
) -> dict[str, Any]:
    metrics = final_metrics(best, epochs)
    states = [state for state in durables if state.trial == best.id]
    own = [row for row in epochs if row.trial == best.id]
    newest = max(states, key=lambda state: state.epoch, default=None)
    return {
        "trial": best.number,
        "id": best.id,
        "reached": reached(best),
        "epoch": best.epoch,
        "value": best.value,
        "values": list(best.values),
        "params": best.params,
        "metrics": {n: v if math.isfinite(v) else None for n, v in metrics.items()},
        "energy_j": joules_of(own),
        "energy": energy_words(own, devices),
        "checkpoint": newest and {"epoch": newest.epoch, "uri": newest.uri},
    }


def _gone(uris: Sequence[str]) -> dict[str, bool]:
    """Return, for each URI that can be checked, True if the file at the URI does not exist.

    All checks together take at most ``STORE_TIMEOUT``, since a store that hangs would hang again
    for each file.
    """
    missing: dict[str, bool] = {}

    def look() -> None:
        for uri in uris:
            with suppress(Exception):  # whatever the store's library raises
                files, path = open_store(uri)
                missing[uri] = not files.exists(path)

    with suppress(TimeoutError):
        within(STORE_TIMEOUT, "store-look", look)
    return dict(missing)


def _where(state: dict[str, Any]) -> str:
    note = "  (gone: the file is not there any more)" if state["gone"] else ""
    return f"epoch {state['epoch']}  {state['uri']}{note}"


def best_view(facts: dict[str, Any]) -> RenderableType:
    """Render the result of ``best_facts`` for the terminal.

    Energy is left out if it was not measured.
    """
    if "front" in facts:
        return _front_view(facts)
    several = facts.get("replicates")
    words = f"best {'configuration' if several else 'trial'}{' so far' if facts['so_far'] else ''}"
    subject = f"trials {', '.join(several)}, mean" if several else f"{facts['trial']},"
    head = Text.assemble(
        (facts["study"], "bold"),
        f" {facts['status']}: {words} {subject} {facts['metric_name']} ",
        (number(facts["mean"] if several else facts["value"]), "bold green"),
        (f"  ({'last value, ' if facts['epoch'] else ''}{facts['reached']})", "dim"),
    )
    grid = Table.grid(padding=(0, 3, 0, 0))
    each = (
        {f"{facts['metric_name']} of trial {n}": v for n, v in several.items()} if several else {}
    )
    for title, values in (
        ("replicates", each),
        ("parameters", facts["params"]),
        ("metrics", facts["metrics"]),
    ):
        for at, (name, value) in enumerate(values.items()):
            text = "no number" if value is None and title == "metrics" else number(value)
            grid.add_row(Text("" if at else f"  {title}", style="dim"), Text(name), Text(text))
    state = facts["checkpoint"]
    where = "none in the store" if state is None else _where(state)
    lines = [Text.assemble(("  checkpoint  ", "dim"), where)]
    if not facts["energy"].startswith(UNMEASURED):
        lines.insert(0, Text.assemble(("  energy      ", "dim"), facts["energy"]))
    return Group(head, grid, *lines)


def _front_view(facts: dict[str, Any]) -> RenderableType:
    """Render a line for each trial on the Pareto front, and the places of the checkpoints."""
    head = Text.assemble(
        (facts["study"], "bold"),
        f" {facts['status']}: Pareto front{' so far' if facts['so_far'] else ''} of",
        f" {len(facts['front'])}",
    )
    table = Table(box=None, padding=(0, 3, 0, 0), header_style="dim")
    for title in ("  trial", *facts["metrics_of_front"]):
        table.add_column(title, justify="right")
    table.add_column("parameters")
    states = []
    for trial in facts["front"]:
        params = "  ".join(f"{name} {number(value, 3)}" for name, value in trial["params"].items())
        values = [Text(number(value, 5), style="bold green") for value in trial["values"]]
        table.add_row(f"  {trial['trial']}", *values, Text(params))
        if (state := trial["checkpoint"]) is not None:
            title = f"  checkpoint of trial {trial['trial']}  "
            states.append(Text.assemble((title, "dim"), _where(state)))
    return Group(head, table, *states)
