"""Users' values and exceptions in a message: their own methods may raise, or give too much."""

from __future__ import annotations

from collections.abc import Callable

#: Characters of one value in a message.
LONGEST = 2_000


def named(cls: type) -> str:
    """The true name of a class, whatever its metaclass says."""
    return str(type.__dict__["__name__"].__get__(cls))


def worded(value: object, how: Callable[[object], str] = repr, most: int = LONGEST) -> str:
    """``how(value)``, at most ``most`` characters; that it could not be had where it raises."""
    try:
        text = "".join([how(value)])  # a plain str, whatever kind of one it was
    except BaseException as error:  # sys.exit in a __repr__, too
        kind, raised = named(type(value)), named(type(error))
        return f"<a {kind}, whose text could not be had: that raised {raised}>"
    return text if len(text) <= most else f"{text[:most]}… ({len(text):,} characters)"
