"""``penstock plan``: the scheduler's outlook as a table."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from .standing import count, duration

Facts = dict[str, Any]


def plan_view(plan: Facts) -> RenderableType:
    """What runs, what waits, and when the next slot is expected to be free."""
    if not plan["studies"]:
        return Text("no study is at work: there is nothing to plan", style="dim")
    parts: list[RenderableType] = [Text(_head(plan)), Text()]
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
    for title in ("trial", "where", "epoch", "target", "free in", "why"):
        table.add_column(title)
    for row in plan["running"]:
        where = ", ".join(row["slots"])
        table.add_row(*_first(row, where), _time(row["ends"]), row["why"])
    for row in plan["waiting"]:
        where = "waits" if row["width"] == 1 else f"waits for {row['width']} devices"
        table.add_row(*_first(row, where), "", row["why"])
    if table.row_count:
        parts += [table, Text()]
    parts += [Text(_shared(row), style="dim") for row in plan["shared"]]
    parts += [Text(_study(row), style="dim") for row in plan["studies"]]
    return Group(*parts)


def _first(row: Facts, where: str) -> tuple[str, ...]:
    return f"{row['study']}/{row['trial']}", where, str(row["epoch"]), str(row["target"])


def _head(plan: Facts) -> str:
    words = [f"policy {plan['policy']}"]
    if plan["planned"] is not None:
        words.append(f"planned {duration(plan['planned'])} ago")
    if plan["trouble"]:
        words.append(f"{plan['trouble']}; the plan before stands")
    if plan["dirty"]:
        words.append("to be planned anew with the next free slot")
    if plan["free"]:
        words.append(f"free now: {', '.join(plan['free'])}")
    else:
        words.append(f"next slot free in {_time(plan['next_free'])}")
    return "; ".join(words)


def _shared(row: Facts) -> str:
    how = "shared by" if row["trials"] > 1 else "not shared, it has"
    return f"{row['device']} is {how} {count(row['trials'], 'trial')}: {row['why']}"


def _study(row: Facts) -> str:
    words = [f"{row['study']} is {row['status']}"]
    words.append(f"{count(row['to_propose'], 'trial')} to be proposed")
    if row["paused_trials"]:
        words.append(f"{count(row['paused_trials'], 'trial')} at a rung, to be promoted or not")
    return ", ".join(words)


def _time(seconds: float | None) -> str:
    return "not known yet" if seconds is None else f"about {duration(seconds)}"
