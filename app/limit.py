"""Calls that may hang, and an end to waiting for them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def within(seconds: float, name: str, call: Callable[[], T]) -> T:
    """What ``call`` returns or raises; TimeoutError where it does neither in ``seconds``.

    It runs in a thread called ``name``, because no timeout of a socket covers a name lookup, and
    none at all a disk. One that hangs is left behind: it does not keep the process.
    """
    returned: list[T] = []
    raised: list[Exception] = []

    def attempt() -> None:
        try:
            returned.append(call())
        except Exception as error:  # handed to the caller below
            raised.append(error)

    thread = threading.Thread(target=attempt, name=name, daemon=True)
    thread.start()
    thread.join(seconds)
    if raised:
        raise raised[0]
    if not returned:
        raise TimeoutError(f"no answer within {seconds:g} s")
    return returned[0]
