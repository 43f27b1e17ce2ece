"""Pieces of pages as HTML: what is live, charts, links, and tables a page of rows at a time."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from html import escape
from urllib.parse import urlencode


def live(name: str, markup: str) -> str:
    """A part of a page that is replaced when it has changed; its ``name`` is unique there."""
    return f'<div id="{name}" data-live>{markup}</div>'


def chart(name: str, title: str, words: str = "", legend: str = "") -> str:
    """A section with the chart of the page's figure ``name``; the texts are HTML."""
    return (
        f'<section id="{name}"><div class="head"><h2>{title}</h2>'
        f'<p id="{name}-words" data-live>{words}</p>{legend}</div>'
        f'<div class="chart" data-figure="{name}"></div></section>'
    )


def link(page: str, text: object, /, **query: object) -> str:
    """A link to another page, with ``text`` as its words."""
    return f'<a href="{address(page, **query)}">{escape(str(text))}</a>'


def address(page: str, /, **query: object) -> str:
    """The address of another page, for an attribute."""
    return escape(f"{page}?{urlencode(query, errors='replace')}" if query else page)


def table(titles: Sequence[str], numbers: Collection[str], rows: Sequence[str]) -> str:
    """A table of ``rows``, which are HTML; those of ``titles`` in ``numbers`` are for numbers."""
    heads = "".join(
        f'<th scope="col"{_kind(title, numbers)}>{escape(title)}</th>' for title in titles
    )
    body = "".join(rows)
    return (
        '<div class="scroll" tabindex="0"><table class="still">'
        f"<thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def cells(markup: Sequence[str], titles: Sequence[str], numbers: Collection[str]) -> str:
    """A row of cells, which are HTML."""
    found = "".join(
        f"<td{_kind(title, numbers)}>{cell}</td>"
        for title, cell in zip(titles, markup, strict=True)
    )
    return f"<tr>{found}</tr>"


def _kind(title: str, numbers: Collection[str]) -> str:
    return ' class="n"' if title in numbers else ""


def page_of(query: Mapping[str, str]) -> int:
    """The number of the page of rows that ``query`` asks for, from 1."""
    text = query.get("page", "")
    return max(1, int(text)) if text.isascii() and text.isdecimal() and len(text) < 9 else 1


def pager(page: str, query: Mapping[str, object], at: int, rows: int, size: int) -> str:
    """Links to the pages of ``rows`` rows, ``size`` on each; empty where one holds them all."""
    last = max(1, -(-rows // size))
    if last == 1 and at == 1:
        return ""
    words = [f"page {at} of {last}"]
    for title, to in (("first", 1), ("previous", at - 1), ("next", at + 1), ("last", last)):
        if 1 <= to <= last and to != at:
            words.append(link(page, title, **{**query, "page": to}))
    return f'<p class="pager">{" · ".join(words)}</p>'
