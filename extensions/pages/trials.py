"""Draws the table of a study's trials, in several pages, and single trials with their stories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from ...app.common.text import count
from ...app.extensions import of_ends
from ...app.ledger.summary import front_of, ranked
from ...app.show.stories.story import find_trial, trial_story
from ...base.errors import UsageError
from ...scheduler.model.trial import FINAL, TrialState
from ..report import figures
from ..report.table import best_first, trial_columns
from ..report.timeline import timeline
from .filters import chosen_by
from .follower import TIME, topic_of
from .frame import Content, Page
from .parallel import parallel_part
from .pieces import link, page_of, pager, part

if TYPE_CHECKING:
    from ...app.ledger.rows import EpochRow, StudyRow, TrialRow
    from ...app.show.drawings.columns import Column
    from .site import Site

#: The number of trials on one page of the table.
LISTED = 50
#: The most digits of a trial's number in a query. Further digits are ignored.
DIGITS = 12
#: The most trials that are drawn as lines in the parallel coordinates.
LINES = 200
#: The most characters of a filter, and the most trials that a user can compare at once.
LONGEST, MOST_CHOSEN = 300, 12
#: The directions of an order: ascending has the smallest value first, descending the largest.
DIRECTIONS = ("ascending", "descending")


def trials_page(site: Site, query: Mapping[str, str]) -> Page:
    """Return a page with only the table of a study's trials.

    The page of the study loads this page when the user sorts or filters the table.
    """
    study = site.reader.study(query.get("id", ""))
    head = Markup("<h1>Trials</h1><p>{}</p>").format(link("study", study.name, id=study.id))
    draw = partial(_trials, site, study.id, query)
    return Page(f"Trials of {study.name}", head, draw, (topic_of(study.id),))


def _trials(site: Site, study_id: str, query: Mapping[str, str]) -> Content:
    view, epochs = site.look(study_id)
    markup = trials_part(view.study, view.trials, epochs, query)
    return Content(Markup('<section id="trials">{}</section>').format(markup))


def trials_part(
    study: StudyRow,
    trials: Sequence[TrialRow],
    epochs: Sequence[EpochRow],
    query: Mapping[str, str],
) -> Markup:
    """Return the table of the trials that ``query`` asks for, as HTML.

    The fields of ``query`` are ``filter``, ``order``, ``page`` and ``chosen``. ``order`` is the
    name of a column, with a dash in front if the largest value comes first. ``chosen`` has the
    numbers of the trials that are ticked for a comparison.
    """
    numbers = numbers_in(query.get("chosen", ""))
    columns = trial_columns(study, trials, epochs, partial(_named, study, numbers))
    text, at = query.get("filter", "")[:LONGEST], page_of(query)
    column, down = _order(query.get("order", ""), columns)
    order = None if column is None else f"{'-' if down else ''}{column.title}"
    link_query = {"id": study.id, "order": order, "filter": text or None}
    link_query["chosen"] = ",".join(map(str, numbers)) or None
    error_text = ""
    try:
        holds = chosen_by(text, [_searched(each) for each in columns])
        rows = [each for each in _ordered(study, trials, column, down=down) if holds(each)]
    except UsageError as error:
        error_text, rows = str(error), []
    page_rows = rows[(at - 1) * LISTED : at * LISTED]
    lines = charted(study, sorted(rows, key=attrgetter("number")), LINES)
    present, listed = {trial.state for trial in trials}, {trial.number for trial in page_rows}
    return part(
        "trials.html",
        study=study,
        any_trials=bool(trials),
        trials=page_rows,
        total=len(rows),
        refused=error_text,
        parallel=parallel_part(study, lines),
        some_lines=partly(lines, rows),
        best=front_of(study, trials),
        columns=[_sorting(each, column, down=down, known=link_query) for each in columns],
        sorted={} if column is None else {columns.index(column): DIRECTIONS[down]},
        order=order,
        states=[each for each in TrialState if each in present],
        text=text,
        known=link_query,
        elsewhere=[number for number in numbers if number not in listed],
        pager=pager("study", link_query, at, len(rows), LISTED),
    )


def numbers_in(text: str) -> list[int]:
    """Return the numbers of trials in ``text``, such as ``3,7``.

    Words that are no numbers are left out, and so are numbers after the first ``MOST_CHOSEN``.
    """
    words = dict.fromkeys(text.split(","))
    digits = (each for each in words if each.isascii() and each.isdecimal() and len(each) < 10)
    return [int(each) for each in digits][:MOST_CHOSEN]


def _named(study: StudyRow, chosen: Sequence[int], trial: TrialRow) -> Markup:
    """Return a link to the trial, after a box that chooses the trial for a comparison."""
    box = Markup('<input type="checkbox" name="n" value="{}" aria-label="compare trial {}"{}>')
    attribute = Markup(" checked") if trial.number in chosen else ""
    name = link("trial", trial.number, id=study.id, n=trial.number)
    return box.format(trial.number, trial.number, attribute) + name


def _order(asked: str, columns: Sequence[Column[TrialRow]]) -> tuple[Column[TrialRow] | None, bool]:
    """Return the column by which trials are ordered, and True if the largest value comes first.

    The column is None if ``asked`` names no column; then the best trials come first.
    """
    by_title = {column.title: column for column in reversed(columns)}
    if asked in by_title:
        return by_title[asked], False
    return by_title.get(asked.removeprefix("-")), True


def _ordered(
    study: StudyRow, trials: Sequence[TrialRow], column: Column[TrialRow] | None, *, down: bool
) -> list[TrialRow]:
    """Return the trials ordered by ``column``, with trials without a value there last.

    If ``column`` is None, the best trials come first. With ``down``, the largest value comes first.
    """
    if column is None:
        return best_first(study, trials)
    keys = [(column.sort_key(trial), trial) for trial in trials]
    keyed = [(isinstance(key, str), key, trial) for key, trial in keys if key != ""]
    keyed.sort(key=itemgetter(0, 1), reverse=down)
    return [trial for *_, trial in keyed] + [trial for key, trial in keys if key == ""]


def _sorting(
    column: Column[TrialRow], by: Column[TrialRow] | None, *, down: bool, known: Mapping[str, Any]
) -> Column[TrialRow]:
    """Return ``column`` with a title that is a link to the table sorted by this column.

    If the table is already sorted by this column, the link reverses the order. ``by`` is the column
    by which the table is sorted.
    """
    descends = not down if column is by else column.first == DIRECTIONS[True]
    order = f"{'-' if descends else ''}{column.title}"
    return replace(column, title=link("study", column.title, **{**known, "order": order}))


def _searched(column: Column[TrialRow]) -> Column[TrialRow]:
    """Return the column as filters search it. The column for failures includes failure messages."""
    if column.title != "Failure":
        return column
    return replace(column, key=lambda trial: f"{trial.failure_kind} {trial.failure_message}")


def partly(shown: Sequence[TrialRow], trials: Sequence[TrialRow]) -> str:
    """Return a sentence that says how many of ``trials`` are drawn; empty if all are drawn."""
    if len(shown) == len(trials):
        return ""
    return f" Of {count(len(trials), 'trial')}, {len(shown)} are drawn: the best and newest."


def charted(study: StudyRow, trials: Sequence[TrialRow], most: int) -> Sequence[TrialRow]:
    """Return the trials that a chart shows, in the order of ``trials``.

    Up to ``most`` trials are returned: the best ones, those that run, and the newest ones. If more
    than ``most`` trials are running, all of these are returned.
    """
    if len(trials) <= most:
        return trials
    ids = {trial.id for trial in ranked(study, trials)[: most // 2]}
    ids |= {trial.id for trial in trials if trial.state == TrialState.RUNNING}
    newest = (trial.id for trial in reversed(trials) if trial.id not in ids)
    ids |= set(islice(newest, max(0, most - len(ids))))
    return [trial for trial in trials if trial.id in ids]


def trial_page(site: Site, query: Mapping[str, str]) -> Page:
    """Return the page of one trial.

    The query has the study's ``id`` and the trial's number ``n``. Raises UsageError if there is no
    such trial.
    """
    number = query.get("n", "")[:DIGITS]
    study, trial = find_trial(site.reader, f"{query.get('id', '')}/{number}")
    head = Markup("<h1>Trial {}</h1><p>{}</p>").format(
        trial.number, link("study", study.name, id=study.id)
    )
    topics = (topic_of(study.id),) if trial.state in FINAL else (topic_of(study.id), TIME)
    draw = partial(_trial, site, study, trial)
    return Page(f"Trial {trial.number} of {study.name}", head, draw, topics, charts=True)


def _trial(site: Site, study: StudyRow, trial: TrialRow) -> Content:
    story = trial_story(site.reader, study, trial)
    epochs = [row for row in site.look(study.id)[1] if row.trial == trial.id]
    parts = {
        "curves": figures.learning_curves(story.study, [trial], epochs),
        "timeline": timeline(story.study, [trial], epochs),
    }
    offers = [each for of in of_ends("control", "offers") for each in of(site.reader, study, trial)]
    forms = [form(site.reader, study, trial) for form in of_ends("page", "trial_form")]
    main = part(
        "trial.html",
        study=study,
        trial=trial,
        story=story,
        offers=offers,
        forms=forms,
        printed=site.printed(trial.id),
    )
    return Content(main, parts)
