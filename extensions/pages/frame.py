"""Puts a page into the common frame: style, scripts, links to other pages, and live updates.

All pages are in one folder and link to each other by their names alone, so that the links work
behind a proxy at any path. Text from users is escaped, or enters a page as JSON for the charts.
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
    """The main part of a page as HTML, and the figures of its charts by name."""

    main: Markup
    figures: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """A page: its title as text, its head as HTML, and the function that draws its main part.

    The head is sent to the browser first, because it may take long to draw the main part.
    """

    title: str
    head: Markup
    draw: Callable[[], Content]
    #: The topics that the page shows (``extensions.pages.follower``), or None if the page must be
    #: redrawn after any change.
    topics: tuple[str, ...] | None = None
    #: True if the page may have charts.
    charts: bool = False


def begun(page: Page, here: str, seen: int) -> str:
    """Return the HTML of ``page`` up to its main part.

    ``here`` is the address of the page. ``seen`` is the number of the newest event in the ledger,
    read before the data of the page. The page gets messages about later events.
    """
    return part("begin.html", page=page, here=here, seen=seen, asset_url=asset_url)


def ended(content: Content) -> str:
    """Return the rest of a page's HTML: its main part and the end of the frame."""
    return part("end.html", main=content.main, figures=content.figures or {})


def asset_url(name: str) -> str:
    """Return the address of a style sheet or script. The address changes with the content."""
    return f"{name}?v={_mark(name)}"


def asset(name: str) -> tuple[str, str] | None:
    """Return the text and the media type of a style sheet or script, or None if there is none."""
    read = _ASSETS.get(name)
    return None if read is None else (read(), SCRIPT if name.endswith(".js") else STYLE)


@cache
def _mark(name: str) -> str:
    if name == "plotly.js":  # its content is read when it is asked for
        return version("plotly")
    return hashlib.sha256(_ASSETS[name]().encode()).hexdigest()[:12]


def _charts_library() -> str:
    """Return plotly.js with a prelude that keeps plotly.js from adding its style for maps.

    The pages have no maps, and their policy refuses styles from elsewhere. plotly.js adds no style
    if there is already an element with that style's name.
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
