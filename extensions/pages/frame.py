"""Puts a page into the common frame: style, scripts, the way to other pages, and what is live.

All pages are in one folder and link to each other without a path before, so that they work behind
a proxy at any path. Users' text enters a page as in a report: escaped, or as JSON for the charts.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple

from ...app.show.drawings.page import charts_script, plotly_script, style_sheet
from .pieces import part

if TYPE_CHECKING:
    from markupsafe import Markup

SCRIPT, STYLE = "text/javascript", "text/css"


class Content(NamedTuple):
    """The main part of a page as HTML, and the figures of its charts."""

    main: Markup
    figures: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """A page: its title as text, its head as HTML, and what draws the rest, which takes longer."""

    title: str
    head: Markup
    draw: Callable[[], Content]
    #: The topics that it shows (``extensions.pages.follower``); None: it changes with anything.
    topics: tuple[str, ...] | None = None
    #: True if it may have charts.
    charts: bool = False


def begun(page: Page, here: str, seen: int) -> str:
    """Return the page up to its main part, at the address ``here``.

    It shows the ledger as of ``seen``, the number of an event, which was read before anything else.
    """
    return part("begin.html", page=page, here=here, seen=seen, asset_url=asset_url)


def ended(content: Content) -> str:
    """Return the rest of a page."""
    return part("end.html", main=content.main, figures=content.figures or {})


def asset_url(name: str) -> str:
    """Return the address of a style sheet or script, which changes with its content."""
    return f"{name}?v={_mark(name)}"


def asset(name: str) -> tuple[str, str] | None:
    """Return the text and media type of a style sheet or script; None if it is unknown."""
    read = _ASSETS.get(name)
    return None if read is None else (read(), SCRIPT if name.endswith(".js") else STYLE)


@cache
def _mark(name: str) -> str:
    if name == "plotly.js":  # its content is read when it is asked for
        return version("plotly")
    return hashlib.sha256(_ASSETS[name]().encode()).hexdigest()[:12]


def _charts_library() -> str:
    """Return plotly.js such that it adds no style for maps, which pages do not have.

    Their policy refuses a style that is not theirs. plotly.js adds none where it finds an element
    of that style's name.
    """
    library = plotly_script()
    match = re.search(r'getElementById\("([0-9a-f]{64})"\)', library)
    if match is None:
        return library
    name = f'{{id: "{match[1]}"}}'
    return (
        f'document.head.append(Object.assign(document.createElement("template"), {name}));{library}'
    )


def _beside(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


_ASSETS: dict[str, Callable[[], str]] = {
    "report.css": style_sheet,
    "page.css": lambda: _beside("page.css"),
    "plotly.js": _charts_library,
    "charts.js": charts_script,
    "page.js": lambda: _beside("page.js"),
}
