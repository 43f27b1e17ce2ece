"""Draws one study: how it stands, its pictures, its trials, and what can be done to it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from ...scheduler.model.events import EpochReported
from ...scheduler.model.trial import TrialState
from ..common.console import text_of
from ..common.text import count
from ..ledger.codec import spec_from_json
from ..prefixes.common import study_prefixes
from ..report import device_sharing, figures, lineage, prefixes, report
from ..status.stall_monitor import StallMonitor
from ..views.memory import memory_of, memory_view
from ..views.progress import best_words, ranked
from ..views.screen import progress_words
from ..views.spending import energy_words
from ..views.utilisation import usage_of
from .follower import TIME, topic_of
from .forms import study_forms
from .frame import Page
from .pieces import chart, link, live
from .studies import status
from .trials import trials_part

if TYPE_CHECKING:
    from ..ledger.rows import EpochRow, StudyRow, TrialRow
    from ..views.progress import View
    from .site import Site

#: How many trials the charts draw at least; of more, the best ones and the newest ones.
CHARTED = 400
#: How many of the newest epochs the timeline shows.
NEWEST = 2000
LEGEND = '<span class="legend">worst <i></i> best</span>'


def study_page(site: Site, query: Mapping[str, str]) -> Page:
    """The study of the name or id in ``query``. Raises UsageError if there is none."""
    row = site.reader.study(query.get("id", ""))
    view, epochs = site.look(row.id)
    study, trials = view.study, view.trials
    spec = spec_from_json(study.spec_json)
    waits = StallMonitor(site.settings, site.reader).now(study)
    end = study.finished_at or time.time()
    tiles = report.tiles(study, spec.strategy, view.progress, epochs, end)
    # It reads the epochs of all studies beside it: too much while this is drawn again and again.
    used = usage_of(site.reader, study) if study.finished_at else None
    energy = energy_words(epochs, view.devices)
    common = ""
    if spec.seeding == "shared":
        common = prefixes.section(study_prefixes(spec, trials, epochs))
    sections, drawings = _charts(study, trials, epochs)
    main = (
        live("progress", _progress(view, waits, tiles)),
        f'<section id="actions" class="plain">{live("forms", study_forms(study, spec))}</section>',
        '<div class="pair"><section class="best">',
        live(
            "best",
            f"<h2>{escape(best_words(study).capitalize())}</h2>"
            + report.best_card(study, view.progress, epochs),
        ),
        '</section><section><div class="head"><h2>Study</h2></div>',
        live("facts", report.facts_list(study, spec, trials, epochs, used, energy, end)),
        "</section></div>",
        *sections,
        live("common", common),
        '<section id="trials"><div class="head"><h2>Trials</h2></div>',
        live("table", trials_part(study, trials, epochs, query)),
        "</section>",
    )
    head = (
        f"<h1><bdi>{escape(study.name)}</bdi></h1>"
        f'<p class="lead">{report.lead(study, spec)}</p>'
        f'<p class="links">{link("report", "Report", id=study.id)}'
        f" {link('memory', 'Memory and sharing', id=study.id)}</p>"
    )
    return Page(study.name, head, "".join(main), drawings, _topics(study))


def memory_page(site: Site, query: Mapping[str, str]) -> Page:
    """What memory a study's trials need, and what they did together. As ``study_page``."""
    study = site.reader.study(query.get("id", ""))
    reports = [event for _, event in site.reader.of_trials(study.id, EpochReported)]
    needs = text_of(memory_view(memory_of(site.reader, study)))
    together = device_sharing.company_words(reports) or "None was trained together with another."
    main = (
        '<section><div class="head"><h2>Memory</h2></div>'
        + live("memory", f'<pre class="wide">{escape(needs)}</pre>')
        + '</section><section><div class="head"><h2>Epochs of several trials</h2></div>'
        + live("together", f"<p>{escape(together)}</p>")
        + "</section>"
    )
    head = f"<h1>Memory and sharing</h1><p>{link('study', study.name, id=study.id)}</p>"
    return Page(f"Memory of {study.name}", head, main, topics=_topics(study))


def _topics(study: StudyRow) -> tuple[str, ...]:
    over = study.finished_at is not None
    return (topic_of(study.id),) if over else (topic_of(study.id), TIME)


def _progress(view: View, waits: str | None, tiles: str) -> str:
    words = "".join(
        f'<p class="message">{escape(each)}</p>' for each in (view.study.message, waits) if each
    )
    head = f"<p>{status(view.study.status)} {escape(progress_words(view))}</p>"
    return f'{head}{words}<div class="tiles">{tiles}</div>'


def _charts(
    study: StudyRow, trials: Sequence[TrialRow], epochs: Sequence[EpochRow]
) -> tuple[list[str], dict[str, Any]]:
    """The sections of the study's charts, and the figures in them."""
    charted, newest = _charted(study, trials), epochs[-NEWEST:]
    known = {trial.id for trial in charted}
    some = [row for row in epochs if row.trial in known]
    partly, lately = "", ""
    if len(charted) < len(trials):
        partly = (
            f" Of {count(len(trials), 'trial')}, {len(charted)} are drawn: the best and newest."
        )
    if len(newest) < len(epochs):
        lately = f" The newest {len(newest)} epochs are shown."
    drawings = {
        "curves": figures.learning_curves(study, charted, some),
        "history_time": figures.history(study, charted, some, by="time"),
        "timeline": figures.timeline(study, trials, newest),
    }
    sections = [
        chart("curves", "Learning curves", f"A line a trial.{partly}", LEGEND),
        chart("history_time", "History", f"Each dot is a trial at its last value.{partly}"),
        chart("timeline", "Who held which device", f"A bar is a run of epochs.{lately}", LEGEND),
    ]
    if study.further:
        drawings["pareto"] = figures.pareto(study, charted)
        words = f"The line joins the trials that none beats.{partly}"
        sections.insert(0, chart("pareto", "Pareto front", words, LEGEND))
    if study.strategy == "pbt":
        drawings["lineage"] = lineage.lineage(study, charted)
        words = f"An arrow leads to the trial that goes on from a state.{partly}"
        sections.append(chart("lineage", "Lineage", words, LEGEND))
    return sections, drawings


def _charted(study: StudyRow, trials: Sequence[TrialRow]) -> Sequence[TrialRow]:
    """The trials that the charts show, in their order."""
    if len(trials) <= CHARTED:
        return trials
    chosen = {trial.id for trial in ranked(study, trials)[: CHARTED // 2]}
    chosen |= {trial.id for trial in trials if trial.state == TrialState.RUNNING}
    chosen |= {trial.id for trial in trials[-CHARTED // 2 :]}
    return [trial for trial in trials if trial.id in chosen]
