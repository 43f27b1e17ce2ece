"""Users' values and exceptions as text for messages: their methods may raise, or say too much."""

from __future__ import annotations

from collections.abc import Callable

#: The most characters of one value in a message.
MAX_CHARACTERS = 2_000


def named(cls: type) -> str:
    """The true name of a class, whatever its metaclass says."""
    return str(type.__dict__["__name__"].__get__(cls))


def worded(
    value: object, formatter: Callable[[object], str] = repr, limit: int = MAX_CHARACTERS
) -> str:
    """``formatter(value)``, cut to ``limit`` characters; a placeholder if it raises."""
    try:
        text = "".join([formatter(value)])  # a plain str, even of a subclass
    except BaseException as error:  # sys.exit in a __repr__, too
        kind, raised = named(type(value)), named(type(error))
        return f"<a {kind}, whose text could not be had: that raised {raised}>"
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text):,} characters)"
