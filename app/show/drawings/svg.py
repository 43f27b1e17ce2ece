"""Elements of drawings (SVG). A page's style sets the colours of their text and lines."""

from __future__ import annotations

from collections.abc import Iterable

from markupsafe import Markup


def element(tag: str, *inside: str, **attributes: object) -> Markup:
    """Return an element that contains text or elements. Numbers get one digit after the point.

    Underscores in names of ``attributes`` become dashes (``stroke_width``), except that one at the
    end is dropped (``class_``). Attributes that are None or empty are left out.
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
    """Return a group of elements that shows ``title`` under the pointer."""
    return element("g", element("title", title), *inside)


def drawing(view: str, parts: Iterable[str], what: str, style: str = "") -> Markup:
    """Return the picture of ``parts`` in ``view``, a ``viewBox``.

    ``what`` describes the picture for users who cannot see it.
    """
    return element(
        "svg", *parts, class_="drawn", role="img", aria_label=what, style=style, viewBox=view
    )
