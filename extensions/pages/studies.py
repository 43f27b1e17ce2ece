"""Draws the list of studies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from html import escape
from typing import TYPE_CHECKING, Any

from ...app.common.text import number, share_words, status_word
from ...app.ledger.listed import Listed, read_listed
from ...app.status.listing import view_facts
from ...app.status.study_list import done_words, started_words, took_words
from .frame import Content, Page
from .pieces import cells, link, live, page_of, pager, table

if TYPE_CHECKING:
    from .site import Site

#: How many studies a page lists.
LISTED = 100
#: The columns; those in ``NUMBERS`` hold numbers.
NUMBERS = ("trials", "epochs", "took", "best (last value)")
COLUMNS = ("study", "status", "started", *NUMBERS, "metric")


def studies_page(site: Site, query: Mapping[str, str]) -> Page:
    """All studies, the newest first."""
    return Page("Studies", "<h1>Studies</h1>", lambda: _content(site, query))


def _content(site: Site, query: Mapping[str, str]) -> Content:
    studies = [] if site.reader.is_empty() else read_listed(site.reader.tables)[::-1]
    page = page_of(query)
    shown = studies[(page - 1) * LISTED : page * LISTED]
    still = not site.serves()
    rows = [cells(_cells(_facts(site, row, still=still)), COLUMNS, NUMBERS) for row in shown]
    listed = (
        table(COLUMNS, NUMBERS, rows)
        if rows
        else '<p class="none">There is no study here: start one with'
        " <code>penstock run SCRIPT</code>.</p>"
    )
    part = live("studies", listed + pager("./", {}, page, len(studies), LISTED))
    return Content(f"<section>{part}</section>")


def _facts(site: Site, study: Listed, *, still: bool) -> dict[str, Any]:
    """The study's row of the list."""
    return study.facts or view_facts(replace(site.look(study.id)[0], still=still))


def _cells(facts: dict[str, Any]) -> tuple[str, ...]:
    best = facts["best"]
    share = share_words(facts["weight"], facts["priority"]) if not facts["finished_at"] else ""
    front = f"front of {len(facts['front'])}" if facts["front"] else ""
    return (
        link("study", facts["name"], id=facts["id"]) + (share and f" <small>{share}</small>"),
        status(status_word(facts["status"], still=facts["stands_still"])),
        started_words(facts),
        done_words(facts, "trials"),
        done_words(facts, "epochs"),
        took_words(facts),
        escape(number(best["value"])) if best else front,
        escape(", ".join(each["metric"] for each in facts["objectives"])),
    )


def status(word: str) -> str:
    """A study's status, in its colour."""
    return f'<span class="status {escape(word)}">{escape(word)}</span>'
