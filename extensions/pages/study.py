"""Draws the page of one study: its state, its charts, its trials, and the actions on it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from ...app.extensions import of_ends
from ...app.ledger.codec import spec_from_json
from ...app.show.status.stall_monitor import StallMonitor
from ...app.show.views.progress import best_words
from ...app.show.views.screen import progress_words
from ...app.show.views.spending import energy_words, late_words
from ...app.show.views.utilisation import usage_of
from ...scheduler.model.events import EpochReported
from ..report import device_sharing, figures, lineage, parameter_figures, report
from ..report.timeline import timeline
from .follower import TIME, topic_of
from .forms import study_forms
from .frame import Content, Page
from .lane_groups import lane_groups
from .pieces import link, part
from .tables import markup_of
from .trials import charted, partly, trials_part

if TYPE_CHECKING:
    from ...app.ledger.rows import EpochRow, StudyRow, TrialRow
    from .site import Site

#: The most trials that are drawn as curves, and the most that are drawn as dots. If a study has
#: more, the best and the newest are drawn, since larger charts would keep the browser busy for too
#: long after a click.
CURVES, DOTS = 30, 200
#: The number of newest epochs that the timeline shows.
NEWEST = 150
#: The most epochs that an unfinished study may have for extensions to add remarks, since extensions
#: read all epochs for their remarks.
NOTED = 2_000


def study_page(site: Site, query: Mapping[str, str]) -> Page:
    """Return the page of the study whose id or name is ``id`` in ``query``.

    Raises UsageError if there is no such study.
    """
    study = site.reader.with_names(site.reader.study(query.get("id", "")))
    head = Markup('<h1><bdi>{}</bdi></h1><p class="lead">{}</p><p class="links">{} {}</p>').format(
        study.name,
        report.lead(study, spec_from_json(study.spec_json)),
        link("report", "Report", id=study.id),
        link("memory", "Memory and sharing", id=study.id),
    )
    return Page(
        study.name, head, lambda: _study(site, study.id, query), _topics(study), charts=True
    )


def _study(site: Site, study_id: str, query: Mapping[str, str]) -> Content:
    view, epochs = site.look(study_id)
    view = replace(view, still=not site.serves())
    study, trials = view.study, view.trials
    spec = spec_from_json(study.spec_json)
    waits = StallMonitor(site.settings, site.reader).now(study)
    forecast = None if view.still else site.forecasts.of(study)
    late = late_words(None if forecast is None else forecast.misses)
    end = study.finished_at or time.time()
    # It reads the epochs of all studies that ran meanwhile: too slow while this is redrawn often.
    usage = usage_of(site.reader, study) if study.finished_at else None
    energy = energy_words(epochs, view.devices)
    has_notes = study.finished_at is not None or len(epochs) <= NOTED
    ends = of_ends("show", "status_lines") if has_notes else ()
    running = view.running if study.finished_at is None else {}
    drawings, words = _charts(study, trials, epochs)
    shares, is_due = site.shares.of(study, trials, epochs)
    if shares is not None:
        drawings["importances"] = parameter_figures.importances(shares)
    newer = " Newer ones are being worked out." if is_due else ""
    main = part(
        "study.html",
        view=view,
        words=progress_words(view),
        troubles=(study.reason, waits, late),
        notes=[of(site.reader, study) for of in ends],
        numbers=report.tiles(study, spec.strategy, view.progress, epochs, end),
        forms=study_forms(study, spec),
        best_title=best_words(study).capitalize(),
        best=report.best_card(study, view.progress, epochs),
        facts=report.facts_of(study, spec, trials, epochs, usage, energy, end, forecast),
        common=report.common_section(site.reader, spec, trials, epochs),
        groups=lane_groups(site.reader, view.devices, running, study.id),
        trials=trials_part(study, trials, epochs, query),
        printed=site.printed(study.id),
        drawings=drawings,
        shares=f"{report.shares_words(study, shares)}{newer}",
        **words,
    )
    return Content(main, drawings)


def memory_page(site: Site, query: Mapping[str, str]) -> Page:
    """Return the page that shows how much memory a study needs and how its trials share devices.

    The query is as for ``study_page``.
    """
    study = site.reader.study(query.get("id", ""))
    head = Markup("<h1>Memory and sharing</h1><p>{}</p>").format(
        link("study", study.name, id=study.id)
    )
    draw = partial(_memory, site, study)
    return Page(f"Memory of {study.name}", head, draw, _topics(study))


def _memory(site: Site, study: StudyRow) -> Content:
    reports = [event for _, event in site.reader.of_trials(study.id, EpochReported)]
    details = [
        (heading, markup_of(view(site.reader, study)))
        for heading, view in of_ends("show", "DETAILS")
    ]
    together = device_sharing.group_words(reports) or "None was trained together with another."
    return Content(part("memory.html", details=details, together=together))


def _topics(study: StudyRow) -> tuple[str, ...]:
    over = study.finished_at is not None
    return (topic_of(study.id),) if over else (topic_of(study.id), TIME)


def _charts(
    study: StudyRow, trials: Sequence[TrialRow], epochs: Sequence[EpochRow]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the study's figures, and sentences that name what the figures leave out."""
    dots, newest = charted(study, trials, DOTS), epochs[-NEWEST:]
    lines = charted(study, trials, CURVES)
    drawings = {
        "curves": figures.learning_curves(study, lines, _of(lines, epochs)),
        "history_time": figures.history(study, dots, _of(dots, epochs), by="time"),
        "timeline": timeline(study, trials, newest),
    }
    if study.further:
        drawings["pareto"] = figures.pareto(study, dots)
    if study.strategy == "pbt":
        drawings["lineage"] = lineage.lineage(study, lines)
    lately = f" The newest {NEWEST} epochs are shown." if len(newest) < len(epochs) else ""
    words = {
        "some_lines": partly(lines, trials),
        "some_dots": partly(dots, trials),
        "lately": lately,
    }
    return drawings, words


def _of(trials: Sequence[TrialRow], epochs: Sequence[EpochRow]) -> list[EpochRow]:
    trial_ids = {trial.id for trial in trials}
    return [row for row in epochs if row.trial in trial_ids]
