"""Draws the page of devices: the trials that run on each device now, and recent trials."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from markupsafe import Markup

from ...app.show.drawings.columns import Column
from ...app.show.views.devices import COLUMNS, GONE, NUMBERS, device_facts, shown_devices
from ...scheduler.model.study import study_of_trial
from ..report.timeline import holdings, study_colours
from .forms import drain_form
from .frame import Content, Page
from .lane_groups import lane_groups
from .pieces import link, part

if TYPE_CHECKING:
    from rich.text import Text

    from ...app.ledger.rows import EpochRow, Work
    from ...app.show.views.devices import Facts
    from .site import Site

#: The number of newest epochs, over all studies, in the chart of devices and trials.
NEWEST = 400


def devices_page(site: Site, query: Mapping[str, str]) -> Page:
    """Return the page that lists all devices and has a chart of the trials that ran on them."""
    return Page("Devices", Markup("<h1>Devices</h1>"), lambda: _devices(site), charts=True)


def _devices(site: Site) -> Content:
    now, reader = time.time(), site.reader
    empty = reader.is_empty()
    all_devices = [] if empty else device_facts(reader, served=site.serves())
    listed = shown_devices(all_devices, now)
    kinds = dict.fromkeys(NUMBERS, "n")
    columns: list[Column[Facts]] = [
        Column(title, partial(_cell, cell, now), kinds.get(title, "")) for title, cell in COLUMNS
    ]
    columns.append(
        Column("action", lambda facts: "" if facts["state"] in GONE else drain_form(facts))
    )
    # What a scheduler that is gone left running is at work nowhere.
    running = reader.running() if any(facts["running"] for facts in all_devices) else {}
    epochs = [] if empty else reader.newest_epochs(NEWEST)
    groups = lane_groups(reader, [] if empty else reader.devices(), running)
    main = part(
        "devices.html",
        columns=columns,
        devices=listed,
        groups=groups,
        legend=_legend(site, epochs, running.values()),
    )
    return Content(main, {"holdings": holdings(epochs, running, now)})


def _legend(site: Site, epochs: Sequence[EpochRow], works: Iterable[Work]) -> Markup:
    """Return the legend of the chart: the name of each study with its colour."""
    trials = {row.trial for row in epochs} | {work.trial for work in works}
    names = {study.id: study.name for study in site.reader.studies()} if trials else {}
    swatch = Markup('<i class="swatch" style="background:{}"></i>{}')
    entries = [
        swatch.format(colour, link("study", names[id_], id=id_))
        for id_, colour in study_colours(map(study_of_trial, trials)).items()
        if id_ in names  # it may have been deleted
    ]
    most = f" The newest {NEWEST} epochs are shown." if len(epochs) == NEWEST else ""
    return Markup("A bar is a run of epochs.{} {}").format(most, Markup(" ").join(entries))


def _cell(cell: Callable[[Facts, float], Text], now: float, facts: Facts) -> Markup:
    return Markup("<br>").join(cell(facts, now).plain.split("\n"))
