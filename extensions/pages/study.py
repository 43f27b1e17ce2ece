"""Draws one study: how it stands, its pictures, its trials, and what can be done to it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from html import escape
from typing import TYPE_CHECKING, Any

from ...app.common.console import text_of
from ...app.common.text import count
from ...app.extensions import of_ends
from ...app.ledger.codec import spec_from_json
from ...app.ledger.summary import ranked
from ...app.status.stall_monitor import StallMonitor
from ...app.views.progress import best_words
from ...app.views.screen import progress_words
from ...app.views.spending import energy_words, late_words
from ...app.views.utilisation import usage_of
from ...scheduler.model.events import EpochReported
from ...scheduler.model.trial import TrialState
from ..report import device_sharing, figures, lineage, report
from ..report.timeline import timeline
from . import company
from .follower import TIME, topic_of
from .forms import study_forms
from .frame import Content, Page
from .pieces import chart, link, live
from .studies import status
from .trials import trials_part

if TYPE_CHECKING:
    from ...app.ledger.rows import EpochRow, StudyRow, TrialRow
    from ...app.views.progress import View
    from .site import Site

#: How many trials have a curve and how many a dot, at least; of more, the best and the newest.
#: More of them would keep the browser busy for longer than a click may wait.
CURVES, DOTS = 30, 400
#: How many of the newest epochs the timeline shows.
NEWEST = 300
LEGEND = '<span class="legend">worst <i></i> best</span>'


def study_page(site: Site, query: Mapping[str, str]) -> Page:
    """The study of the name or id in ``query``. Raises UsageError if there is none."""
    study = site.reader.with_names(site.reader.study(query.get("id", "")))
    head = (
        f"<h1><bdi>{escape(study.name)}</bdi></h1>"
        f'<p class="lead">{report.lead(study, spec_from_json(study.spec_json))}</p>'
        f'<p class="links">{link("report", "Report", id=study.id)}'
        f" {link('memory', 'Memory and sharing', id=study.id)}</p>"
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
    tiles = report.tiles(study, spec.strategy, view.progress, epochs, end)
    # It reads the epochs of all studies beside it: too much while this is drawn again and again.
    used = usage_of(site.reader, study) if study.finished_at else None
    energy = energy_words(epochs, view.devices)
    common = report.common_section(site.reader, spec, trials, epochs)
    running = view.running if study.finished_at is None else {}
    groups = company.lane_groups(site.reader, view.devices, running, study.id)
    sections, drawings = _charts(study, trials, epochs)
    main = (
        live("progress", _progress(view, (waits, late), tiles)),
        f'<section id="actions" class="plain">{live("forms", study_forms(study, spec))}</section>',
        '<div class="pair"><section class="best">',
        live(
            "best",
            f"<h2>{escape(best_words(study).capitalize())}</h2>"
            + report.best_card(study, view.progress, epochs),
        ),
        '</section><section><div class="head"><h2>Study</h2></div>',
        live("facts", report.facts_list(study, spec, trials, epochs, used, energy, end, forecast)),
        "</section></div>",
        *sections,
        live("common", common),
        live("groups", company.section(groups)),
        '<section id="trials"><div class="head"><h2>Trials</h2></div>',
        live("table", trials_part(study, trials, epochs, query)),
        "</section>",
    )
    return Content("".join(main), drawings)


def memory_page(site: Site, query: Mapping[str, str]) -> Page:
    """What memory a study's trials need, and what they did together. As ``study_page``."""
    study = site.reader.study(query.get("id", ""))
    head = f"<h1>Memory and sharing</h1><p>{link('study', study.name, id=study.id)}</p>"
    draw = partial(_memory, site, study)
    return Page(f"Memory of {study.name}", head, draw, _topics(study))


def _memory(site: Site, study: StudyRow) -> Content:
    reports = [event for _, event in site.reader.of_trials(study.id, EpochReported)]
    details = ""
    for heading, view in of_ends("show", "DETAILS"):
        text = escape(text_of(view(site.reader, study)))
        details += (
            f'<section><div class="head"><h2>{heading}</h2></div>'
            + live(heading.lower(), f'<pre class="wide">{text}</pre>')
            + "</section>"
        )
    together = device_sharing.company_words(reports) or "None was trained together with another."
    return Content(
        details
        + '<section><div class="head"><h2>Epochs of several trials</h2></div>'
        + live("together", f"<p>{escape(together)}</p>")
        + "</section>"
    )


def _topics(study: StudyRow) -> tuple[str, ...]:
    over = study.finished_at is not None
    return (topic_of(study.id),) if over else (topic_of(study.id), TIME)


def _progress(view: View, troubles: Sequence[str | None], tiles: str) -> str:
    words = "".join(
        f'<p class="message">{escape(each)}</p>' for each in (view.study.reason, *troubles) if each
    )
    head = f"<p>{status(view.status)} {escape(progress_words(view))}</p>"
    return f'{head}{words}<div class="tiles">{tiles}</div>'


def _charts(
    study: StudyRow, trials: Sequence[TrialRow], epochs: Sequence[EpochRow]
) -> tuple[list[str], dict[str, Any]]:
    """The sections of the study's charts, and the figures in them."""
    dots, newest = _charted(study, trials, DOTS), epochs[-NEWEST:]
    lines = _charted(study, trials, CURVES)
    lately = f" The newest {NEWEST} epochs are shown." if len(newest) < len(epochs) else ""
    drawings = {
        "curves": figures.learning_curves(study, lines, _of(lines, epochs)),
        "history_time": figures.history(study, dots, _of(dots, epochs), by="time"),
        "timeline": timeline(study, trials, newest),
    }
    some_lines, some_dots = _partly(lines, trials), _partly(dots, trials)
    sections = [
        chart("curves", "Learning curves", f"A line a trial.{some_lines}", LEGEND),
        chart("history_time", "History", f"Each dot is a trial at its last value.{some_dots}"),
        chart("timeline", "Who held which device", f"A bar is a run of epochs.{lately}", LEGEND),
    ]
    if study.further:
        drawings["pareto"] = figures.pareto(study, dots)
        words = f"The line joins the trials that none beats.{some_dots}"
        sections.insert(0, chart("pareto", "Pareto front", words, LEGEND))
    if study.strategy == "pbt":
        drawings["lineage"] = lineage.lineage(study, lines)
        words = f"An arrow leads to the trial that goes on from a state.{some_lines}"
        sections.append(chart("lineage", "Lineage", words, LEGEND))
    return sections, drawings


def _partly(shown: Sequence[TrialRow], trials: Sequence[TrialRow]) -> str:
    """That only some are shown; empty if all are."""
    if len(shown) == len(trials):
        return ""
    return f" Of {count(len(trials), 'trial')}, {len(shown)} are drawn: the best and newest."


def _of(trials: Sequence[TrialRow], epochs: Sequence[EpochRow]) -> list[EpochRow]:
    known = {trial.id for trial in trials}
    return [row for row in epochs if row.trial in known]


def _charted(study: StudyRow, trials: Sequence[TrialRow], most: int) -> Sequence[TrialRow]:
    """The trials that a chart of ``most`` shows, in their order, with all that run."""
    if len(trials) <= most:
        return trials
    chosen = {trial.id for trial in ranked(study, trials)[: most // 2]}
    chosen |= {trial.id for trial in trials if trial.state == TrialState.RUNNING}
    chosen |= {trial.id for trial in trials[-most // 2 :]}
    return [trial for trial in trials if trial.id in chosen]
