"""Fill the templates of reports and pages, with the style, script and mark that all share.

A template is a file next to its module, named by its path in this folder (``pieces.html``) or in
the extensions' folder (``report/report.html``). Values except ``Markup`` are escaped as they enter
a template. Charts have their figures as JSON in which no text can end the script. A page contains
its style, its code and, for charts, plotly.js, and forbids all network access. So even a study
named ``<script>`` is harmless.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import Any
from urllib.parse import quote

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ...common.plain import encodable
from ...common.text import count, duration, number
from .charts import SCALE, labelled, shade

_HERE = __name__.rpartition(".")[0]


@cache
def _environment() -> Environment:
    folders = (_HERE, f"{_HERE.partition('.')[0]}.extensions")
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(folder, "") for folder in folders]),
        autoescape=True,
        auto_reload=False,
        lstrip_blocks=True,
        trim_blocks=True,
        undefined=StrictUndefined,
    )
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    environment.filters |= {
        "duration": duration,
        "labelled": labelled,
        "moment": moment,
        "shown": _shown,
    }
    environment.globals |= {"count": count, "icon": icon, "mark": mark, "style": style_sheet}
    return environment


def filled(template: str, /, **values: Any) -> Markup:
    """Return a template filled with ``values``."""
    text = _environment().get_template(template).render(values)
    return Markup(encodable(text))  # noqa: S704 - the template has escaped what came into it


def page(template: str, /, charts: Mapping[str, Any], now: datetime, **values: Any) -> Markup:
    """Return the page of a template that extends ``frame.html``.

    Without ``charts`` the page does not contain plotly.js.
    """
    library = plotly_script() if charts else Markup()
    return filled(
        template,
        charts=charts,
        library=library,
        megabytes=f"{len(library) / 1e6 + 0.1:.1f}",
        script=charts_script(),
        now=now.timestamp(),
        **values,
    )


def _shown(value: object) -> str:
    """Mark up a value in a list of facts; a percentage stays in one line."""
    if isinstance(value, Markup):
        return value
    return number(value).replace(" %", "\N{NO-BREAK SPACE}%")


def style_sheet() -> Markup:
    """Return the style of all pages, light and dark."""
    scale = ", ".join("rgb({},{},{})".format(*rgb) for _, rgb in SCALE)
    return _beside("report.css").replace("{{scale}}", scale)


def mark() -> Markup:
    """Return Penstock's mark as an ``svg`` element, in the colour of the text around it."""
    return _beside("mark.svg").strip()


def icon() -> str:
    """Return the mark as a page's icon, an address that needs no network."""
    return f"data:image/svg+xml,{quote(picture_of_mark(), safe='')}"


def picture_of_mark() -> str:
    """Return the mark as the text of an SVG file, in a blue that is visible on light and dark."""
    return mark().replace("currentColor", shade(1.0))


def charts_script() -> Markup:
    """Return the JavaScript with which a page draws its figures; it needs ``plotly_script``."""
    return _beside("charts.js")


def plotly_script() -> Markup:
    """Return the library plotly.js, as the installed plotly has it."""
    from plotly.offline import get_plotlyjs

    return Markup(get_plotlyjs())  # noqa: S704 - the installed library's own file


def _beside(name: str) -> Markup:
    text = files(_HERE).joinpath(name).read_text(encoding="utf-8")
    return Markup(text)  # noqa: S704 - it is a file of ours


def moment(at: float) -> str:
    """Return ``at`` (seconds since 1970) as a date and time of UTC."""
    return datetime.fromtimestamp(at, UTC).strftime("%-d %B %Y, %H:%M:%S UTC")
