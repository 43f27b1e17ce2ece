"""Parts that pages share: templates, links, and the links below a table that has several pages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from markupsafe import Markup

from ...app.show.drawings.page import filled


def part(template: str, /, **values: Any) -> Markup:
    """Return a template of this folder, filled with ``values``, as HTML.

    The template may call ``link``.
    """
    return filled(f"pages/{template}", link=link, **values)


def link(page: str, text: object, /, *, here: bool = False, **query: object) -> Markup:
    """Return a link to ``page`` with the text ``text`` and the fields of ``query``.

    With ``here``, the link is marked as the current page.
    """
    parameters = {name: value for name, value in query.items() if value is not None}
    address = f"{page}?{urlencode(parameters, errors='replace')}" if parameters else page
    now = Markup(' aria-current="true"') if here else ""
    return Markup('<a href="{}"{}>{}</a>').format(address, now, text)


def page_of(query: Mapping[str, str]) -> int:
    """Return the number of the table's page that ``query`` asks for, from 1."""
    text = query.get("page", "")
    return max(1, int(text)) if text.isascii() and text.isdecimal() and len(text) < 9 else 1


def pager(page: str, query: Mapping[str, object], at: int, rows: int, size: int) -> Markup:
    """Return links to the other pages of a table, for the page number ``at``.

    The table has ``rows`` rows, and ``size`` of them are on each page. The result is empty if there
    is one page only.
    """
    last = max(1, -(-rows // size))
    if last == 1 and at == 1:
        return Markup()
    words = [f"page {at} of {last}"]
    for title, to in (("first", 1), ("previous", at - 1), ("next", at + 1), ("last", last)):
        if 1 <= to <= last and to != at:
            words.append(link(page, title, here=False, **{**query, "page": to}))
    return Markup('<p class="pager">{}</p>').format(Markup(" · ").join(words))
