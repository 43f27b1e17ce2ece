"""Puts a page into the common frame: style, scripts, links to other pages, and live updates.

All pages are in one folder and link to each other by their names alone, so that they work behind a
proxy at any path. Users' text enters a page as in a report: escaped, or as JSON for the charts.
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
    """A page: its title as text, its head as HTML, and the function that draws the slower rest."""

    title: str
    head: Markup
    draw: Callable[[], Content]
    #: The topics that the page shows (``extensions.pages.follower``); None if any change concerns
    #: it.
    topics: tuple[str, ...] | None = None
    #: True if the page may have charts.
    charts: bool = False


def begun(page: Page, here: str, seen: int) -> str:
    """Return the beginning of ``page``, at the address ``here``, up to its main part.

    The page shows the ledger as of event number ``seen``, which was read before anything else.
    """
    return part("begin.html", page=page, here=here, seen=seen, asset_url=asset_url)


def ended(content: Content) -> str:
    """Return the rest of a page: its main part and its end."""
    return part("end.html", main=content.main, figures=content.figures or {})


def asset_url(name: str) -> str:
    """Return the address of a style sheet or script. It changes when the content does."""
    return f"{name}?v={_mark(name)}"


def asset(name: str) -> tuple[str, str] | None:
    """Return the text and media type of a style sheet or script; None if the name is unknown."""
    read = _ASSETS.get(name)
    return None if read is None else (read(), SCRIPT if name.endswith(".js") else STYLE)


@cache
def _mark(name: str) -> str:
    if name == "plotly.js":  # its content is read when it is asked for
        return version("plotly")
    return hashlib.sha256(_ASSETS[name]().encode()).hexdigest()[:12]


def _charts_library() -> str:
    """Return plotly.js with a prelude that keeps it from adding its style for maps.

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
