"""The only console that the project prints to: foreign text cannot control the terminal.

Names, parameters and messages of users' code are cleaned before text is laid out, so the columns of
a table have the width of the visible text. The project's own colours are styles, not text, and
remain.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

from rich import console
from rich.segment import Segment

from .plain import plain


class PlainConsole(console.Console):
    """rich's console, except that the drawn text is cleaned."""

    def render(self, *given: Any, **more: Any) -> Iterator[Segment]:
        """Render like rich's console, and clean the text."""
        for part in super().render(*given, **more):
            yield part if part.control else part._replace(text=plain(part.text))


def text_of(shown: console.RenderableType, width: int = 120) -> str:
    """Return ``shown`` as plain text, laid out ``width`` characters wide."""
    file = io.StringIO()
    PlainConsole(file=file, width=width, color_system=None).print(shown, highlight=False)
    return file.getvalue()
