"""Show the scheduler's outlook, which is its forecast, as a table (``penstock plan``)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from ....scheduler.policies.waterfill import NARROW
from ....scheduler.strategies.base import UNBOUNDED
from ...common.text import count, duration, instead, number
from ...extensions import of_ends

Facts = dict[str, Any]

#: The text in the place of a target epoch for a trial that runs until its objective returns.
NO_TARGET = "none"


#: The largest number of waiting trials that are listed for each study. The trials that come first
#: in the queue are listed. ``--json`` lists all trials.
LISTED = 10
#: The titles of the columns.
COLUMNS = ("trial", "where", "epoch", "target", "free in", "why")


def plan_view(plan: Facts) -> RenderableType:
    """Render the plan: its head line, the running and waiting trials, and the lines of details."""
    if not plan["studies"]:
        return Text(head_words(plan), style="dim")
    rows = plan_rows(plan)
    parts: list[RenderableType] = [Text(head_words(plan)), Text()]
    parts += [_Rows(rows), Text()] if rows else []
    return Group(*parts, *(Text(line, style="dim") for line in detail_words(plan)))


def plan_rows(plan: Facts) -> list[tuple[str, ...]]:
    """Return a row of ``COLUMNS`` for each running trial and for the first waiting trials.

    At most ``LISTED`` waiting trials of each study are listed.
    """
    rows = [
        (*_first(row, ", ".join(row["slots"])), _free_in(row), row["why"])
        for row in plan["running"]
    ]
    listed = Counter[str]()
    for row in plan["waiting"]:
        listed[row["study"]] += 1
        if listed[row["study"]] > LISTED:
            continue
        where = "waits" if row["width"] == 1 else f"waits for {row['width']} devices"
        rows.append((*_first(row, where), "", row["why"]))
    return rows


def head_words(plan: Facts) -> str:
    """Return the head line: the policy, the age of its plan, and the next free slot.

    If no study runs, the line says so.
    """
    if plan["studies"]:
        return _head(plan)
    trouble = f"; {_trouble(plan)}" if plan["trouble"] else ""
    return f"no study is running: there is nothing to plan{trouble}"


def detail_words(plan: Facts) -> Iterator[str]:
    """Yield a line for each shared device, for each lane of such a device, and for each study.

    A lane is a process that trains several trials in turn.
    """
    for row in plan["shared"]:
        yield _shared(row)
        for lane_words in of_ends("show", "lane_words"):
            yield from lane_words(row)
    waiting = Counter(row["study"] for row in plan["waiting"])
    yield from (_study(row, waiting[row["study"]] - LISTED) for row in plan["studies"])


class _Rows:
    """The trials as a table, or as two lines for each trial if the terminal is too narrow."""

    def __init__(self, rows: list[tuple[str, ...]]) -> None:
        self._rows = rows

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
        for title in COLUMNS:
            table.add_column(title)
        for row in self._rows:
            table.add_row(*row)
        endless = options.update(width=10_000)
        if console.measure(table, options=endless).maximum <= options.max_width:
            yield table
            return
        for trial, where, epoch, target, ends, why in self._rows:
            free = f", free in {ends}" if ends else ""
            of = "" if target == NO_TARGET else f" of {target}"
            yield Text.assemble((trial, "bold"), f"  epoch {epoch}{of}{free}: {why}")
            yield Text(f"  {where}", style="dim")


def _first(row: Facts, where: str) -> tuple[str, ...]:
    aim = NO_TARGET if _is_open(row) else str(row["target"])
    return f"{row['study']}/{row['trial']}", where, str(row["epoch"]), aim


def _is_open(row: Facts) -> bool:
    """Return True if only the trial's objective knows how many epochs the trial will have."""
    return bool(row["target"] >= UNBOUNDED)


def _head(plan: Facts) -> str:
    words = [f"policy {plan['policy']}"]
    if plan["rule"] == NARROW and plan["policy"] != NARROW:
        words[0] += f", now as {NARROW}: no width is known to be faster than one device"
    if plan["planned"] is not None:
        words.append(f"planned {duration(plan['planned'])} ago")
    if plan["trouble"]:
        words.append(_trouble(plan))
    if plan["dirty"]:
        words.append("a new plan is made when the next slot is free")
    if plan["free"]:
        words.append(f"free now: {', '.join(plan['free'])}")
    else:
        words.append(_next_free(plan))
    return "; ".join(words)


def _next_free(plan: Facts) -> str:
    if plan["next_free"] is not None:
        return f"next slot free in {_time(plan['next_free'])}"
    if any(map(_is_open, plan["running"])):
        return "the next slot is free when an objective returns"
    return "it is not known yet when the next slot is free"


def _free_in(row: Facts) -> str:
    """Return the time until the slot of a running trial is free.

    The result is empty if only the trial's objective knows when the trial ends.
    """
    return "" if row["ends"] is None and _is_open(row) else _time(row["ends"])


def _trouble(plan: Facts) -> str:
    """Return a text that says how the policy failed and which plan is used instead."""
    follows = instead(plan["aside"]) if plan["aside"] else "the previous plan stays in force"
    return f"{plan['trouble']}: {follows}"


def _shared(row: Facts) -> str:
    how = "is shared by" if row["trials"] > 1 else "is not shared but has"
    return f"{row['device']} {how} {count(row['trials'], 'trial')}: {row['why']}"


def _study(row: Facts, unlisted: int) -> str:
    """Return the line about a study.

    ``unlisted`` is the number of waiting trials that are not listed.
    """
    words = [f"{row['study']} is {row['status']}"]
    if unlisted > 0:
        verb = "waits" if unlisted == 1 else "wait"
        words.append(f"{count(unlisted, 'more trial')} {verb} (penstock plan --json has all)")
    if row["to_propose"] is None:
        words.append("trials are proposed until it is stopped")
    else:
        words.append(f"{count(row['to_propose'], 'trial')} still to be proposed")
    if row["paused_trials"]:
        words.append(f"{count(row['paused_trials'], 'trial')} paused at a rung until promoted")
    for plan_words in of_ends("show", "plan_words"):
        words += plan_words(row)
    if row["share"] is not None:
        how = f"weight {row['weight']:g}, priority {row['priority']}"
        words.append(f"its share is {number(row['share'], 3)} slots ({how})")
    if row["ends"] is not None:
        words.append(f"it is expected to end in {_time(row['ends'])}")
    if row["deadline"] is not None:
        words.append(_deadline(row["deadline"], row["misses"]))
    return ", ".join(words)


def _deadline(left: float, misses: float | None) -> str:
    """Return words such as *its deadline is in 2 h 00 min, which it will miss by about 20 min*.

    ``left`` is the number of seconds until the deadline. ``misses`` is the number of seconds by
    which the study is expected to miss its deadline, or None.
    """
    when = f"its deadline is in {duration(left)}" if left > 0 else "its deadline is over"
    return f"{when}, which it will miss by {_time(misses)}" if misses else when


def _time(seconds: float | None) -> str:
    return "not known yet" if seconds is None else f"about {duration(seconds)}"
