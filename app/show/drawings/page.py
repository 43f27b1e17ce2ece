"""Fill the templates of reports and pages, with the style, the script and the mark that all share.

A template is a file. Its name is its path in this folder (``pieces.html``) or in the extensions'
folder (``report/report.html``). All values except ``Markup`` are escaped when they enter a
template. The figures of charts are JSON in which no text can end the script. A page contains its
style, its code and, for charts, plotly.js, and it forbids all network access. So even a study named
``<script>`` is harmless.
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
    """Return the page that a template makes. The template must extend ``frame.html``.

    ``now`` is the time of making the page, which the page shows in its footer. The page contains
    plotly.js only if there are ``charts``.
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
    """Return a value in a list of facts as text or markup.

    A percentage is never broken across lines.
    """
    if isinstance(value, Markup):
        return value
    return number(value).replace(" %", "\N{NO-BREAK SPACE}%")


def style_sheet() -> Markup:
    """Return the CSS of all pages, light and dark."""
    scale = ", ".join("rgb({},{},{})".format(*rgb) for _, rgb in SCALE)
    return _beside("report.css").replace("{{scale}}", scale)


def mark() -> Markup:
    """Return Penstock's mark as an ``svg`` element in the colour of the surrounding text."""
    return _beside("mark.svg").strip()


def icon() -> str:
    """Return the mark as the icon of a page: a ``data:`` URL, which needs no network."""
    return f"data:image/svg+xml,{quote(picture_of_mark(), safe='')}"


def picture_of_mark() -> str:
    """Return the mark as the text of an SVG file, in a blue that is visible on light and dark."""
    return mark().replace("currentColor", shade(1.0))


def charts_script() -> Markup:
    """Return the JavaScript with which a page draws its figures.

    The script needs the library that ``plotly_script`` returns.
    """
    return _beside("charts.js")


def plotly_script() -> Markup:
    """Return the library plotly.js from the installed plotly package."""
    from plotly.offline import get_plotlyjs

    return Markup(get_plotlyjs())  # noqa: S704 - the installed library's own file


def _beside(name: str) -> Markup:
    text = files(_HERE).joinpath(name).read_text(encoding="utf-8")
    return Markup(text)  # noqa: S704 - it is a file of ours


def moment(at: float) -> str:
    """Return ``at`` (seconds since 1970) as a date and a time in UTC."""
    return datetime.fromtimestamp(at, UTC).strftime("%-d %B %Y, %H:%M:%S UTC")
