"""Elements of drawings (SVG). The style of the page sets the colours of text and lines."""

from __future__ import annotations

from collections.abc import Iterable

from markupsafe import Markup


def element(tag: str, *inside: str, **attributes: object) -> Markup:
    """Return an SVG element that contains texts or other elements.

    In ``attributes``, a float gets one digit after the point. An underscore in the name of an
    attribute becomes a dash (``stroke_width``), but an underscore at the end is dropped
    (``class_``). Attributes that are None or empty are left out.
    """
    attribute_text = Markup().join(
        Markup(' {}="{}"').format(name.rstrip("_").replace("_", "-"), _attribute(value))
        for name, value in attributes.items()
        if value is not None and value != ""
    )
    return Markup("<{0}{1}>{2}</{0}>").format(tag, attribute_text, Markup().join(inside))


def _attribute(value: object) -> str:
    return f"{value:.1f}" if isinstance(value, float) else str(value)


def titled(title: str, *inside: Markup) -> Markup:
    """Return a group of elements that shows ``title`` under the mouse pointer."""
    return element("g", element("title", title), *inside)


def drawing(view: str, parts: Iterable[str], what: str, style: str = "") -> Markup:
    """Return the ``svg`` element of the drawing that consists of ``parts``.

    ``view`` is the element's ``viewBox``. ``what`` describes the drawing for users who cannot see
    it.
    """
    return element(
        "svg", *parts, class_="drawn", role="img", aria_label=what, style=style, viewBox=view
    )
