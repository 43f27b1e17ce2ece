"""Draws the page of the plan: running trials, waiting trials with reasons, and studies' shares."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from ...app.broker.client import Client
from ...app.client.study.control import no_scheduler
from ...app.common.text import duration, number
from ...app.extensions import of_ends
from ...app.show.drawings.columns import Column
from ...app.show.views.plan import COLUMNS, head_words, plan_rows
from ...base.errors import PenstockError
from .frame import Content, Page
from .pieces import link, part

if TYPE_CHECKING:
    from .site import Site

Facts = dict[str, Any]

#: Seconds that the page waits for the scheduler's answer.
PATIENCE = 5.0


def plan_page(site: Site, query: Mapping[str, str]) -> Page:
    """Return the page that shows what the scheduler plans to do next."""
    return Page("Plan", Markup("<h1>Plan</h1>"), lambda: Content(_plan(site)))


def _plan(site: Site) -> Markup:
    if not site.serves():
        return part("plan.html", trouble=no_scheduler(site.settings))
    try:
        plan = Client(site.settings, timeout=PATIENCE).plan()
    except PenstockError as error:
        return part("plan.html", trouble=str(error))
    trials: list[Column[Any]] = [
        Column(title, itemgetter(index) if index else _trial) for index, title in enumerate(COLUMNS)
    ]
    tables = (
        ("Trials", trials, plan_rows(plan)),
        ("Studies", STUDIES, _studies(plan)),
        ("Shared devices", DEVICES, plan["shared"]),
    )
    return part("plan.html", trouble="", facts=_facts(plan), tables=tables)


def _facts(plan: Facts) -> dict[str, str]:
    """Return the facts in the head of the page by label, with the words of ``penstock plan``."""
    first, *rest = head_words(plan).split("; ")
    if not plan["studies"]:
        return {"Now": "; ".join((first, *rest))}
    return {"Policy": first.removeprefix("policy "), "Now": "; ".join(rest)}


def _studies(plan: Facts) -> list[Facts]:
    """Return the plan's studies, each with the number of its trials that wait."""
    waiting = Counter(row["study"] for row in plan["waiting"])
    return [{**row, "waiting": waiting[row["study"]]} for row in plan["studies"]]


def _trial(row: tuple[str, ...]) -> Markup:
    study, _, trial = row[0].rpartition("/")
    return link("trial", row[0], id=study, n=trial)


def _time(seconds: float | None) -> str | None:
    return None if seconds is None else f"in about {duration(max(0.0, seconds))}"


def _deadline(row: Facts) -> str | None:
    if row["deadline"] is None:
        return None
    when = f"in {duration(row['deadline'])}" if row["deadline"] > 0 else "over"
    return f"{when}, missed by about {duration(row['misses'])}" if row["misses"] else when


def _share(row: Facts) -> str | None:
    if row["share"] is None:
        return None
    return f"{number(row['share'], 3)} slots (weight {row['weight']:g}, priority {row['priority']})"


def _said(end: str, row: Facts) -> str | None:
    """Return the remarks that extensions make on a row, or None if they make none.

    ``end`` is the name of the extensions' functions.
    """
    return "; ".join(words for of in of_ends("show", end) for words in of(row)) or None


STUDIES: tuple[Column[Facts], ...] = (
    Column("study", lambda row: link("study", row["study"], id=row["study"])),
    Column("status", itemgetter("status")),
    Column("waiting", itemgetter("waiting"), "n"),
    Column("to be proposed", lambda row: row["to_propose"], "n"),
    Column("at a rung", itemgetter("paused_trials"), "n"),
    Column("share", _share),
    Column("expected to end", lambda row: _time(row["ends"])),
    Column("deadline", _deadline),
    Column("more", lambda row: _said("plan_words", row), "why"),
)
DEVICES: tuple[Column[Facts], ...] = (
    Column("device", itemgetter("device")),
    Column("trials", itemgetter("trials"), "n"),
    Column("reason", itemgetter("why"), "why"),
    Column("lanes", lambda row: _said("lane_words", row), "why"),
)
