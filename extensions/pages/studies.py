"""Draws the page that lists all studies."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from ...app.common.text import number, share_words, status_word
from ...app.ledger.listed import Listed, read_listed
from ...app.show.drawings.columns import Column
from ...app.show.drawings.page import moment
from ...app.show.drawings.svg import element
from ...app.show.status.listing import view_facts
from ...app.show.status.study_list import done_words, started_words, took_words
from ...scheduler.model.trial import TrialState
from .frame import Content, Page
from .pieces import link, page_of, pager, part

if TYPE_CHECKING:
    from .site import Site

#: The number of studies on one page of the list.
LISTED = 100
#: The most trials that a finished study may have for its curve to be drawn, since all of them are
#: read for the curve.
DRAWN = 1_000
#: Pixels: width and height of a study's curve in the list, and the margin around its line.
WIDTH, HEIGHT, MARGIN = 96, 22, 2


def studies_page(site: Site, query: Mapping[str, str]) -> Page:
    """Return the page that lists all studies, with the newest first."""
    return Page("Studies", Markup("<h1>Studies</h1>"), lambda: _content(site, query))


def _content(site: Site, query: Mapping[str, str]) -> Content:
    studies = [] if site.reader.is_empty() else read_listed(site.reader.tables)[::-1]
    page = page_of(query)
    listed = studies[(page - 1) * LISTED : page * LISTED]
    still = not site.serves()
    facts = [_facts(site, row, still=still) for row in listed]
    bests = {each["id"]: _best_so_far(site, each) for each in facts}
    curve: Column[dict[str, Any]] = Column("best so far", lambda each: _curve(bests[each["id"]]))
    return Content(
        part(
            "studies.html",
            columns=[*COLUMNS, curve],
            studies=facts,
            pager=pager("./", {}, page, len(studies), LISTED),
        )
    )


def _facts(site: Site, study: Listed, *, still: bool) -> dict[str, Any]:
    """Return the facts that the row of a study in the list shows.

    ``still`` is True if no scheduler runs.
    """
    return study.facts or view_facts(replace(site.look(study.id)[0], still=still))


def _named(facts: dict[str, Any]) -> Markup:
    name_link = link("study", facts["name"], id=facts["id"])
    share = share_words(facts["weight"], facts["priority"]) if not facts["finished_at"] else ""
    return name_link + (Markup(" <small>{}</small>").format(share) if share else "")


def _status(facts: dict[str, Any]) -> Markup:
    word = status_word(facts["status"], still=facts["stands_still"])
    return Markup('<span class="status {0}">{0}</span>').format(word)


def _best(facts: dict[str, Any]) -> str:
    if facts["best"]:
        return number(facts["best"]["value"])
    return f"front of {len(facts['front'])}" if facts["front"] else ""


def _started(facts: dict[str, Any]) -> Markup:
    """Return the time at which the study started as text, with the exact second as a tooltip."""
    at, words = moment(facts["created_at"]), started_words(facts)
    return Markup('<time title="{}">{}</time>').format(at, words)


def _progress(facts: dict[str, Any]) -> Markup | None:
    """Return a progress bar of the study, or None if its length is not known.

    The bar compares the epochs done with the expected epochs. If no number of epochs is expected,
    the bar compares trials in the same way.
    """
    completed, of = facts["epochs"], facts["epochs_expected"]
    if not of:
        completed, of = facts["trials_over"], facts["trials_expected"]
    if not of:
        return None
    share = f"{min(1.0, completed / of):.0%}"
    bar = Markup('<progress max="{}" value="{}" aria-label="{} done"></progress> {}')
    return bar.format(of, min(completed, of), share, share)


def _best_so_far(site: Site, facts: dict[str, Any]) -> Sequence[float]:
    """Return the best value after each trial with a result.

    The result is empty for several objectives, and for a finished study of more than ``DRAWN``
    trials.
    """
    if len(facts["objectives"]) > 1:
        return ()
    if facts["finished_at"] is None:
        trials = site.look(facts["id"])[0].trials
    elif sum(facts["trials"].values()) > DRAWN:
        return ()
    elif (cached := site.bests.get((facts["id"], facts["finished_at"]))) is not None:
        return cached
    else:
        trials = site.reader.trials(facts["id"])
    ranked = (t for t in trials if t.state != TrialState.FAILED and t.feasible)
    values = (t.value for t in ranked if t.value is not None and math.isfinite(t.value))
    best = list(accumulate(values, max if facts["direction"] == "maximize" else min))
    if facts["finished_at"] is not None:
        site.bests[facts["id"], facts["finished_at"]] = best
    return best


def _curve(best: Sequence[float]) -> Markup | None:
    """Return a small drawing of the best value so far over the trials.

    Return None if there are fewer than two values.
    """
    if len(best) < 2:
        return None
    description = f"from {number(best[0])} to {number(best[-1])} over {len(best)} trials"
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in curve_points(best))
    line = element("polyline", points=points)
    size = f"0 0 {WIDTH} {HEIGHT}"
    return element(
        "svg",
        element("title", description),
        line,
        class_="spark",
        role="img",
        aria_label=description,
        viewBox=size,
    )


def curve_points(best: Sequence[float]) -> list[tuple[float, float]]:
    """Return the points of a stepped curve of ``best``, in pixels.

    The least value is at the bottom.
    """
    low, high = min(best), max(best)
    span, across = (high - low) or 1.0, (WIDTH - 2 * MARGIN) / (len(best) - 1)
    points: list[tuple[float, float]] = []
    for index, value in enumerate(best):
        changes = index == 0 or value != best[index - 1]
        if not changes and index < len(best) - 1:
            continue
        x = MARGIN + index * across
        if points:
            points.append((x, points[-1][1]))
        points.append((x, HEIGHT - MARGIN - (value - low) / span * (HEIGHT - 2 * MARGIN)))
    return points


def _metrics(facts: dict[str, Any]) -> str:
    return ", ".join(each["metric"] for each in facts["objectives"])


#: The columns of the list. Columns of kind ``n`` contain numbers.
COLUMNS: tuple[Column[dict[str, Any]], ...] = (
    Column("study", _named),
    Column("status", _status),
    Column("started", _started),
    Column("trials", lambda facts: done_words(facts, "trials"), "n"),
    Column("epochs", lambda facts: done_words(facts, "epochs"), "n"),
    Column("progress", _progress),
    Column("took", took_words, "n"),
    Column("best (last value)", _best, "n"),
    Column("metric", _metrics),
)
