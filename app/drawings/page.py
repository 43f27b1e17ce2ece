"""Puts the body of a page into the common frame (style, charts and footer), and its pieces.

A page contains its style, its code and, for charts, plotly.js, and forbids all network access.
Users' text enters it in two ways only: through ``html.escape`` into the page, and as JSON into the
charts. So even a study named ``<script>`` is harmless.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ..common.plain import encodable
from ..common.text import number
from .charts import SCALE, shade


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def pairs(values: Mapping[str, object]) -> str:
    """Return names and values as a definition list."""
    rows = "".join(f"<dt>{escape(name)}</dt><dd>{_html(v)}</dd>" for name, v in values.items())
    return f"<dl>{rows}</dl>"


def _html(value: object) -> str:
    if isinstance(value, Markup):
        return value
    return escape(number(value)).replace(" %", "\N{NO-BREAK SPACE}%")


def page(template: Path, parts: Mapping[str, str], charts: Mapping[str, Any], now: datetime) -> str:
    """Return the page whose header and main are in a file.

    ``parts`` are HTML by the name of their placeholder. Without ``charts`` it has no plotly.js.
    """
    library, size = "", ""
    if charts:
        library = plotly_script()
        size = (
            f" This file is about {len(library) / 1e6 + 0.1:.1f} MB, nearly all of it plotly.js,"
            " so that it opens without a network."
        )
    known = {
        "style": style_sheet(),
        "mark": mark(),
        "icon": icon(),
        "charts": charts_script(),
        "figures": script_json(charts),
        "plotly": library,
        "footer": f"Made by Penstock on {moment(now.timestamp())}.{size}",
        **parts,
    }
    frame, body = _beside("frame.html"), template.read_text(encoding="utf-8")
    # One pass: inserted text is never searched for placeholders.
    whole = frame.replace("{{body}}", body)
    return encodable(re.sub(r"\{\{(\w+)\}\}", lambda match: known[match[1]], whole))


def style_sheet() -> str:
    """The style of all pages, light and dark."""
    scale = ", ".join("rgb({},{},{})".format(*rgb) for _, rgb in SCALE)
    return _beside("report.css").replace("{{scale}}", scale)


def mark() -> str:
    """Penstock's mark as an ``svg`` element, in the colour of the text around it."""
    return _beside("mark.svg").strip()


def icon() -> str:
    """The mark as a page's icon, an address that needs no network."""
    return f"data:image/svg+xml,{quote(picture_of_mark(), safe='')}"


def picture_of_mark() -> str:
    """The mark as a file of its own, in a blue that is seen on light and on dark."""
    return mark().replace("currentColor", shade(1.0))


def charts_script() -> str:
    """JavaScript with which a page draws its figures; it needs ``plotly_script``."""
    return _beside("charts.js")


def plotly_script() -> str:
    """The library plotly.js, as the installed plotly has it."""
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs())


def _beside(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def script_json(value: Any) -> str:
    """JSON that is safe inside a script element: no text in it can close the element."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def moment(at: float) -> str:
    """``at`` (seconds since 1970) as a date and time of UTC."""
    return datetime.fromtimestamp(at, UTC).strftime("%-d %B %Y, %H:%M:%S UTC")
