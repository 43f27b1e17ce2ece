"""Draws the trials of a study, some at a time, and one trial with its story."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from html import escape
from typing import TYPE_CHECKING

from ...app.common.text import count, duration
from ...app.drawings.page import pairs
from ...app.ledger.summary import front_of, ranked
from ...app.stories.story import find_trial, trial_story
from ...scheduler.model.trial import FINAL, TrialState
from ..report import figures
from ..report.table import table_row, trial_columns
from ..report.timeline import timeline
from .follower import TIME, topic_of
from .frame import Content, Page
from .pieces import chart, link, live, page_of, pager, table

if TYPE_CHECKING:
    from ...app.ledger.rows import EpochRow, StudyRow, TrialRow
    from ...app.stories.story import Story
    from .site import Site

#: How many trials a page lists.
LISTED = 50
#: No trial's number has more digits.
DIGITS = 12
#: How trials can be ordered: by result or by number.
SORTS = ("best", "newest", "oldest")


def trials_part(
    study: StudyRow,
    trials: Sequence[TrialRow],
    epochs: Sequence[EpochRow],
    query: Mapping[str, str],
) -> str:
    """The trials that ``query`` asks for: ``state``, ``order`` and ``page``."""
    if not trials:
        return '<p class="none">No trial was proposed yet.</p>'
    order = query.get("order") if query.get("order") in SORTS else SORTS[0]
    state = query.get("state") if query.get("state") in set(TrialState) else None
    known = {"id": study.id, "order": order, **({} if state is None else {"state": state})}
    chosen = [each for each in _ordered(study, trials, str(order)) if state in (None, each.state)]
    at = page_of(query)
    columns = trial_columns(
        study, trials, epochs, lambda each: link("trial", each.number, id=study.id, n=each.number)
    )
    best = {each.id for each in front_of(study, trials)}
    rows = [
        table_row(each, columns, best=each.id in best)
        for each in chosen[(at - 1) * LISTED : at * LISTED]
    ]
    titles = [column.title for column in columns]
    numbers = {column.title for column in columns if column.kind == "n"}
    return (
        f'<p class="choices">{_choices(study, trials, order, state)}</p>'
        f'<p class="none">{count(len(chosen), "trial")}</p>'
        + table(titles, numbers, rows)
        + pager("study", known, at, len(chosen), LISTED)
    )


def _ordered(study: StudyRow, trials: Sequence[TrialRow], order: str) -> list[TrialRow]:
    if order == "best":
        first = ranked(study, trials)
        listed = {trial.id for trial in first}
        return first + [trial for trial in trials if trial.id not in listed]
    return list(trials) if order == "oldest" else list(trials)[::-1]


def _choices(
    study: StudyRow, trials: Sequence[TrialRow], order: str | None, state: str | None
) -> str:
    """Links to other orders, and to the trials in one state."""
    present = {trial.state for trial in trials}
    states = [None, *(each for each in TrialState if each in present)]
    sorts = [
        _choice(each, each == order, id=study.id, order=each, **_state(state)) for each in SORTS
    ]
    shown = [
        _choice(each or "all", each == state, id=study.id, order=order, **_state(each))
        for each in states
    ]
    return f"{' '.join(sorts)} — {' '.join(shown)}"


def _state(state: str | None) -> dict[str, str]:
    return {} if state is None else {"state": state}


def _choice(title: str, chosen: bool, **query: object) -> str:
    return f"<b>{escape(title)}</b>" if chosen else link("study", title, **query)


def trial_page(site: Site, query: Mapping[str, str]) -> Page:
    """The trial ``n`` of the study ``id`` of ``query``. Raises UsageError if there is none."""
    number = query.get("n", "")[:DIGITS]
    study, trial = find_trial(site.reader, f"{query.get('id', '')}/{number}")
    head = f"<h1>Trial {trial.number}</h1><p>{link('study', study.name, id=study.id)}</p>"
    topics = (topic_of(study.id),) if trial.state in FINAL else (topic_of(study.id), TIME)
    draw = partial(_trial, site, study, trial)
    return Page(f"Trial {trial.number} of {study.name}", head, draw, topics, charts=True)


def _trial(site: Site, study: StudyRow, trial: TrialRow) -> Content:
    story = trial_story(site.reader, study, trial)
    epochs = [row for row in site.look(study.id)[1] if row.trial == trial.id]
    metrics = pairs(story.metrics) if story.metrics else '<p class="none">None yet.</p>'
    main = (
        live(
            "lead",
            f'<p><i class="{trial.state}">{trial.state}</i>'
            f", {count(trial.epoch, 'epoch')}</p>"
            + "".join(f"<p>{escape(each)}.</p>" for each in story.origins),
        ),
        '<div class="pair"><section><div class="head"><h2>Parameters</h2></div>',
        live("params", pairs(trial.params) if trial.params else '<p class="none">None.</p>'),
        '</section><section><div class="head"><h2>Metrics</h2></div>',
        live("metrics", metrics),
        "</section></div>",
        chart("curves", "Learning curve"),
        chart("timeline", "Where it ran"),
        '<section id="story"><div class="head"><h2>Story</h2></div>',
        live("lines", "".join(_lines(story))),
        "</section>",
    )
    shown = {
        "curves": figures.learning_curves(story.study, [trial], epochs),
        "timeline": timeline(story.study, [trial], epochs),
    }
    return Content("".join(main), shown)


def _lines(story: Story) -> Iterator[str]:
    """What happened, in order: the cause of each attempt, and below it what the attempt did."""
    if not story.lines:
        yield '<p class="none">Nothing has happened to it yet.</p>'
        return
    attempt = None
    yield '<ol class="story">'
    for line in story.lines:
        if line.attempt is not None and line.attempt != attempt:
            attempt = line.attempt
            words = [f"attempt {attempt} (fence {line.fence})", line.cause, line.length]
            yield f'<li class="cause">{escape(", ".join(each for each in words if each))}</li>'
        elif line.seq is None:
            yield f'<li class="cause">{escape(line.cause)}</li>'
        after = duration(max(0.0, line.after))
        number = "" if line.seq is None else f" #{line.seq}"
        yield f"<li><small>+{after}{number}</small> {escape(line.what)}"
        if line.traceback:
            yield (
                "<details><summary>traceback</summary>"
                f"<pre>{escape(line.traceback.rstrip())}</pre></details>"
            )
        yield "</li>"
    yield "</ol>"
