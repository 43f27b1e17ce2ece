"""Draws the devices with who holds what, now and lately, and the plan with who waits and why."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING

from ...app.broker.client import Client
from ...app.study.control import no_scheduler
from ...app.views.devices import COLUMNS, GONE, NUMBERS, device_facts, shown_devices
from ...app.views.plan import COLUMNS as PLANNED
from ...app.views.plan import detail_words, head_words, plan_rows
from ...profiling.base.errors import PenstockError
from ...scheduler.model.study import study_of_trial
from ..report.timeline import holdings, study_colours
from . import company
from .forms import drain_form
from .frame import Content, Page
from .pieces import cells, chart, link, live, table

if TYPE_CHECKING:
    from ...app.ledger.rows import EpochRow, Work
    from ...app.views.devices import Facts
    from .site import Site

#: Of how many of the newest epochs of all studies it is shown which device held which trial.
NEWEST = 400
#: Seconds until a scheduler that does not answer is given up.
PATIENCE = 5.0


def devices_page(site: Site, query: Mapping[str, str]) -> Page:
    """Every device, its state and what runs there; below it who held which device."""
    return Page("Devices", "<h1>Devices</h1>", lambda: _devices(site), charts=True)


def _devices(site: Site) -> Content:
    now, reader = time.time(), site.reader
    empty = reader.is_empty()
    known = [] if empty else device_facts(reader, served=site.serves())
    shown = shown_devices(known, now)
    titles = [title for title, _ in COLUMNS]
    rows = [cells(_cells(facts, now), [*titles, "action"], NUMBERS) for facts in shown]
    listed = (
        table([*titles, "action"], NUMBERS, rows)
        if rows
        else '<p class="none">There is no device yet: start workers with'
        " <code>penstock up</code>.</p>"
    )
    # What a scheduler that is gone left running is at work nowhere.
    running = reader.running() if any(facts["running"] for facts in known) else {}
    epochs = [] if empty else reader.newest_epochs(NEWEST)
    groups = company.lane_groups(reader, [] if empty else reader.devices(), running)
    main = (
        f"<section>{live('devices', listed)}</section>"
        + live("groups", company.section(groups))
        + chart("holdings", "Who held which device", _legend(site, epochs, running.values()))
    )
    return Content(main, {"holdings": holdings(epochs, running, now)})


def _legend(site: Site, epochs: Sequence[EpochRow], works: Iterable[Work]) -> str:
    """The studies in the chart, each in its colour."""
    trials = {row.trial for row in epochs} | {work.trial for work in works}
    names = {study.id: study.name for study in site.reader.studies()} if trials else {}
    shown = [
        f'<i class="swatch" style="background:{colour}"></i>{link("study", names[id_], id=id_)}'
        for id_, colour in study_colours(map(study_of_trial, trials)).items()
        if id_ in names  # it may have been deleted
    ]
    most = f" The newest {NEWEST} epochs are shown." if len(epochs) == NEWEST else ""
    return f"A bar is a run of epochs.{most} {' '.join(shown)}"


def _cells(facts: Facts, now: float) -> list[str]:
    found = [escape(cell(facts, now).plain).replace("\n", "<br>") for _, cell in COLUMNS]
    return [*found, "" if facts["state"] in GONE else drain_form(facts)]


def plan_page(site: Site, query: Mapping[str, str]) -> Page:
    """What the scheduler would do next: who runs until when, who waits and why."""
    return Page(
        "Plan",
        "<h1>Plan</h1>",
        lambda: Content(f"<section>{live('plan', _plan(site))}</section>"),
    )


def _plan(site: Site) -> str:
    if not site.serves():
        return f'<p class="message">{escape(no_scheduler(site.settings))}</p>'
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
