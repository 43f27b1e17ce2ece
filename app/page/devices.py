"""Draws the devices with who holds what, now and lately, and the plan with who waits and why."""

from __future__ import annotations

import time
from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING

from ...profiling.base.errors import PenstockError
from ..broker.client import Client
from ..report import figures
from ..views.devices import COLUMNS, GONE, NUMBERS, device_facts, shown_devices
from ..views.plan import COLUMNS as PLANNED
from ..views.plan import detail_words, head_words, plan_rows
from .forms import drain_form
from .frame import Page
from .pieces import cells, chart, link, live, table

if TYPE_CHECKING:
    from ..views.devices import Facts
    from .site import Site

#: Of so many studies that run, or of the newest one, it is shown which device held which trial.
CHARTED = 4
#: How many of the newest epochs of each.
NEWEST = 1000
#: Seconds until a scheduler that does not answer is given up.
PATIENCE = 5.0
_SILENT = "no scheduler runs: <code>penstock up</code> starts one"


def devices_page(site: Site, query: Mapping[str, str]) -> Page:
    """Every device, its state and what runs there; below it who held which device."""
    now = time.time()
    empty = site.reader.is_empty()
    known = [] if empty else device_facts(site.reader, served=site.serves())
    shown = shown_devices(known, now)
    titles = [title for title, _ in COLUMNS]
    rows = [cells(_cells(facts, now), [*titles, "action"], NUMBERS) for facts in shown]
    listed = (
        table([*titles, "action"], NUMBERS, rows)
        if rows
        else '<p class="none">There is no device yet: start workers with'
        " <code>penstock up</code>.</p>"
    )
    studies = [] if empty else site.reader.studies()
    running = [study for study in studies if study.finished_at is None]
    sections, drawings = [], {}
    for number, study in enumerate((running or studies[-1:])[-CHARTED:][::-1]):
        view, epochs = site.look(study.id)
        name = f"timeline_{number}"
        drawings[name] = figures.timeline(view.study, view.trials, epochs[-NEWEST:])
        sections.append(
            chart(name, "Who held which device", link("study", study.name, id=study.id))
        )
    main = (
        f"<section>{live('devices', listed)}</section>"
        # In one part, since studies come and go.
        + live("timelines", "".join(sections))
    )
    return Page("Devices", "<h1>Devices</h1>", main, drawings)


def _cells(facts: Facts, now: float) -> list[str]:
    found = [escape(cell(facts, now).plain).replace("\n", "<br>") for _, cell in COLUMNS]
    return [*found, "" if facts["state"] in GONE else drain_form(facts)]


def plan_page(site: Site, query: Mapping[str, str]) -> Page:
    """What the scheduler would do next: who runs until when, who waits and why."""
    return Page("Plan", "<h1>Plan</h1>", f"<section>{live('plan', _plan(site))}</section>")


def _plan(site: Site) -> str:
    if not site.serves():
        return f'<p class="message">{_SILENT}</p>'
    try:
        plan = Client(site.settings, timeout=PATIENCE).plan()
    except PenstockError as error:
        return f'<p class="message">{escape(str(error))}</p>'
    rows = [cells([escape(each) for each in row], PLANNED, ()) for row in plan_rows(plan)]
    lines = "".join(f"<li>{escape(line.strip())}</li>" for line in detail_words(plan))
    return (
        f"<p>{escape(head_words(plan))}</p>"
        + (table(PLANNED, (), rows) if rows else "")
        + (f"<ul>{lines}</ul>" if lines else "")
    )
