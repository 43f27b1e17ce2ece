"""Messages of a trainer to its worker, as lines of JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...base.errors import TrialFailed
from ...base.wording import named, worded
from ...wire.messages import MAX_MESSAGE, dumps


def line_of(message: dict[str, Any]) -> bytes:
    """Return ``message`` as a line of JSON.

    Raises ``TrialFailed``, which names the part that is not JSON or too long.
    """
    try:
        line = dumps(message).encode() + b"\n"
    except (TypeError, ValueError, RecursionError):
        where, value, why = next(_unsendable(message, ""))
        raise TrialFailed(
            "exception", f"{where} = {worded(value, limit=200)} cannot be sent to the worker: {why}"
        ) from None
    if len(line) > MAX_MESSAGE:
        sizes = {name: len(dumps(value)) for name, value in message.items()}
        largest = max(sizes, key=lambda name: sizes[name])
        raise TrialFailed(
            "exception",
            f"{message['op']}: {largest} has {sizes[largest]:,} characters, too many to be sent"
            f" to the worker: the limit is {MAX_MESSAGE:,}",
        )
    return line


def _unsendable(value: Any, where: str) -> Iterator[tuple[str, Any, str]]:
    """Yield the parts of ``value`` that are not JSON, innermost first: place, part and reason."""
    try:
        dumps(value)
    except (TypeError, ValueError, RecursionError) as error:
        if isinstance(value, dict) and not (where and isinstance(error, RecursionError)):
            for name, inner in value.items():
                yield from _unsendable(inner, f"{where}[{worded(name)}]" if where else str(name))
        yield where, value, f"{named(type(error))}: {worded(error, str)}"
