"""Puts a page into the common frame: style, scripts, the way to other pages, and what is live.

All pages are in one folder and link to each other without a path before, so that they work behind
a proxy at any path. Users' text enters a page as in a report: escaped, or as JSON for the charts.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from ...app.common.plain import encodable
from ...app.drawings.page import charts_script, icon, mark, plotly_script, script_json, style_sheet

SCRIPT, STYLE = "text/javascript", "text/css"
#: Where a page's main part is in the frame.
MAIN = "{{main}}"


class Content(NamedTuple):
    """The main part of a page as HTML, and the figures of its charts."""

    main: str
    figures: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """A page: its title as text, its head as HTML, and what draws the rest, which takes longer."""

    title: str
    head: str
    draw: Callable[[], Content]
    #: The topics that it shows (``extensions.pages.follower``); None: it changes with anything.
    topics: tuple[str, ...] | None = None
    #: Whether it may have charts.
    charts: bool = False


def begun(page: Page, here: str, seen: int) -> str:
    """The page up to its main part, at the address ``here``; it shows the ledger as of ``seen``.

    ``seen`` is the number of an event, and was read before anything else.
    """
    names = ("plotly.js", "charts.js", "page.js") if page.charts else ("page.js",)
    topics = "" if page.topics is None else escape(json.dumps(page.topics))
    known = {
        "title": f"{escape(page.title)} · Penstock",
        "icon": icon(),
        "mark": mark(),
        "report.css": asset_url("report.css"),
        "page.css": asset_url("page.css"),
        "scripts": "".join(f'<script defer src="{asset_url(name)}"></script>' for name in names),
        "seen": str(seen),
        "topics": topics and f' data-topics="{topics}"',
        "head": page.head,
        **{
            f"at {name}": ' aria-current="page"' if name == here else ""
            for name in ("./", "devices", "plan")
        },
    }
    return _filled(_beside("frame.html").partition(MAIN)[0], known)


def ended(content: Content) -> str:
    """The rest of a page."""
    rest = "".join(_beside("frame.html").partition(MAIN)[1:])
    return _filled(rest, {"main": content.main, "figures": script_json(content.figures or {})})


def _filled(template: str, known: Mapping[str, str]) -> str:
    # One pass: inserted text is never searched for placeholders.
    return encodable(re.sub(r"\{\{([^{}]+)\}\}", lambda match: known[match[1]], template))


def asset_url(name: str) -> str:
    """The address of a style sheet or script, which changes with its content."""
    return f"{name}?v={_mark(name)}"


def asset(name: str) -> tuple[str, str] | None:
    """The text and the media type of a style sheet or script; None if there is no such one."""
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
    added = re.search(r'getElementById\("([0-9a-f]{64})"\)', library)
    if added is None:
        return library
    name = f'{{id: "{added[1]}"}}'
    return (
        f'document.head.append(Object.assign(document.createElement("template"), {name}));{library}'
    )


def _beside(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


_ASSETS: dict[str, Callable[[], str]] = {
    "report.css": style_sheet,
    "page.css": lambda: _beside("page.css"),
    "plotly.js": _charts_library,
    "charts.js": charts_script,
    "page.js": lambda: _beside("page.js"),
}
