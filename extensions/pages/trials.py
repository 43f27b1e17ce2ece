"""Draws the trials of a study, some at a time, and one trial with its story."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from markupsafe import Markup

from ...app.extensions import of_ends
from ...app.ledger.summary import front_of
from ...app.stories.story import find_trial, trial_story
from ...scheduler.model.trial import FINAL, TrialState
from ..report import figures
from ..report.table import best_first, trial_columns
from ..report.timeline import timeline
from .follower import TIME, topic_of
from .frame import Content, Page
from .pieces import link, page_of, pager, part

if TYPE_CHECKING:
    from ...app.ledger.rows import EpochRow, StudyRow, TrialRow
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
) -> Markup:
    """Return the trials that ``query`` asks for: ``state``, ``order`` and ``page``."""
    order = query.get("order") if query.get("order") in SORTS else SORTS[0]
    state = query.get("state") if query.get("state") in set(TrialState) else None
    known = {"id": study.id, "order": order, "state": state}
    chosen = [each for each in _ordered(study, trials, str(order)) if state in (None, each.state)]
    at = page_of(query)
    present = {trial.state for trial in trials}
    return part(
        "trials.html",
        any_trials=bool(trials),
        trials=chosen[(at - 1) * LISTED : at * LISTED],
        total=len(chosen),
        best=front_of(study, trials),
        columns=trial_columns(
            study,
            trials,
            epochs,
            lambda each: link("trial", each.number, id=study.id, n=each.number),
        ),
        sorts=SORTS,
        order=order,
        states=[None, *(each for each in TrialState if each in present)],
        state=state,
        known=known,
        pager=pager("study", known, at, len(chosen), LISTED),
    )


def _ordered(study: StudyRow, trials: Sequence[TrialRow], order: str) -> list[TrialRow]:
    if order == "best":
        return best_first(study, trials)
    return list(trials) if order == "oldest" else list(trials)[::-1]


def trial_page(site: Site, query: Mapping[str, str]) -> Page:
    """The trial ``n`` of the study ``id`` of ``query``. Raises UsageError if there is none."""
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
    shown = {
        "curves": figures.learning_curves(story.study, [trial], epochs),
        "timeline": timeline(story.study, [trial], epochs),
    }
    offers = [each for of in of_ends("control", "offers") for each in of(site.reader, study, trial)]
    return Content(part("trial.html", study=study, trial=trial, story=story, offers=offers), shown)
