"""The one kind of console that the project prints to: what others wrote cannot steer a terminal.

Names, parameters and messages of users' code are cleaned as they become text to be laid out, so a
table's columns have the width of what is seen. Our own colours are styles, not text, and stay.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich import console
from rich.segment import Segment

from .plain import plain


class PlainConsole(console.Console):
    """As rich's, of which it changes no more than the text that is drawn."""

    def render(self, *given: Any, **more: Any) -> Iterator[Segment]:
        """As rich's, cleaned."""
        for part in super().render(*given, **more):
            yield part if part.control else part._replace(text=plain(part.text))
