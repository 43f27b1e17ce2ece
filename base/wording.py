"""Values as text for messages: sizes, and users' values and exceptions.

Methods of users' values and exceptions may raise, or return too much text.
"""

from __future__ import annotations

from collections.abc import Callable

#: The most characters of one value in a message.
MAX_CHARACTERS = 2_000


def named(cls: type) -> str:
    """Return the true name of a class, whatever its metaclass says."""
    return str(type.__dict__["__name__"].__get__(cls))


def worded(
    value: object, formatter: Callable[[object], str] = repr, limit: int = MAX_CHARACTERS
) -> str:
    """Return ``formatter(value)``, cut to ``limit`` characters.

    If the formatter raises an error, return a placeholder that names the error's type.
    """
    try:
        text = "".join([formatter(value)])  # a plain str, even of a subclass
    except BaseException as error:  # sys.exit in a __repr__, too
        kind, raised = named(type(value)), named(type(error))
        return f"<a {kind}, whose text could not be had: that raised {raised}>"
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text):,} characters)"


def size_words(count: int) -> str:
    """Return ``count`` bytes in words, in up to four digits: ``70 bytes``, ``1.5 GiB``."""
    units = {"GiB": 1 << 30, "MiB": 1 << 20, "KiB": 1 << 10}
    unit = next((name for name, bytes_ in units.items() if count >= bytes_), "bytes")
    amount = count / units.get(unit, 1)
    return f"{amount:.3g} {unit}" if amount < 1000 else f"{amount:.0f} {unit}"
