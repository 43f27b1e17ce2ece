"""Calls that may hang, and an end to waiting for them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TypeVar

T = TypeVar("T")


def patiently(every: float, name: str, call: Callable[[], T], tell: Callable[[], object]) -> T:
    """What ``call`` returns or raises, however long it takes; every so many seconds, ``tell``.

    ``call`` runs in a thread called ``name``, ``tell`` in this one.
    """
    done = _begun(name, call)
    while not wait([done], every).done:
        tell()
    return done.result()


def within(seconds: float, name: str, call: Callable[[], T]) -> T:
    """What ``call`` returns or raises; TimeoutError where it does neither in ``seconds``.

    It runs in a thread called ``name``, because no timeout of a socket covers a name lookup, and
    none at all a disk. One that hangs is left behind: it does not keep the process.
    """
    done = _begun(name, call)
    if not wait([done], seconds).done:
        raise TimeoutError(f"no answer within {seconds:g} s")
    return done.result()


def _begun(name: str, call: Callable[[], T]) -> Future[T]:
    done = Future[T]()

    def attempt() -> None:
        try:
            done.set_result(call())
        except Exception as error:  # handed to who waits
            done.set_exception(error)

    threading.Thread(target=attempt, name=name, daemon=True).start()
    return done
