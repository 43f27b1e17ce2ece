"""Draws the list of studies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from ...app.common.text import number, share_words, status_word
from ...app.drawings.columns import Column
from ...app.ledger.listed import Listed, read_listed
from ...app.status.listing import view_facts
from ...app.status.study_list import done_words, started_words, took_words
from .frame import Content, Page
from .pieces import link, page_of, pager, part

if TYPE_CHECKING:
    from .site import Site

#: How many studies a page lists.
LISTED = 100


def studies_page(site: Site, query: Mapping[str, str]) -> Page:
    """All studies, the newest first."""
    return Page("Studies", Markup("<h1>Studies</h1>"), lambda: _content(site, query))


def _content(site: Site, query: Mapping[str, str]) -> Content:
    studies = [] if site.reader.is_empty() else read_listed(site.reader.tables)[::-1]
    page = page_of(query)
    shown = studies[(page - 1) * LISTED : page * LISTED]
    still = not site.serves()
    return Content(
        part(
            "studies.html",
            columns=COLUMNS,
            studies=[_facts(site, row, still=still) for row in shown],
            pager=pager("./", {}, page, len(studies), LISTED),
        )
    )


def _facts(site: Site, study: Listed, *, still: bool) -> dict[str, Any]:
    """The study's row of the list."""
    return study.facts or view_facts(replace(site.look(study.id)[0], still=still))


def _named(facts: dict[str, Any]) -> Markup:
    named = link("study", facts["name"], id=facts["id"])
    share = share_words(facts["weight"], facts["priority"]) if not facts["finished_at"] else ""
    return named + (Markup(" <small>{}</small>").format(share) if share else "")


def _status(facts: dict[str, Any]) -> Markup:
    word = status_word(facts["status"], still=facts["stands_still"])
    return Markup('<span class="status {0}">{0}</span>').format(word)


def _best(facts: dict[str, Any]) -> str:
    if facts["best"]:
        return number(facts["best"]["value"])
    return f"front of {len(facts['front'])}" if facts["front"] else ""


def _metrics(facts: dict[str, Any]) -> str:
    return ", ".join(each["metric"] for each in facts["objectives"])


#: The columns; those of the kind ``n`` hold numbers.
COLUMNS: tuple[Column[dict[str, Any]], ...] = (
    Column("study", _named),
    Column("status", _status),
    Column("started", started_words),
    Column("trials", lambda facts: done_words(facts, "trials"), "n"),
    Column("epochs", lambda facts: done_words(facts, "epochs"), "n"),
    Column("took", took_words, "n"),
    Column("best (last value)", _best, "n"),
    Column("metric", _metrics),
)
