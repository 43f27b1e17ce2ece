"""Call functions that may hang, and stop waiting for them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TypeVar

T = TypeVar("T")


def call_with_notices(
    every: float, name: str, call: Callable[[], T], notify: Callable[[], object]
) -> T:
    """Return the result of ``call``, or raise its error, without a time limit.

    Meanwhile ``notify`` is called every ``every`` seconds, in the calling thread. ``call`` runs in
    a thread called ``name``.
    """
    future = _begun(name, call)
    while not wait([future], every).done:
        notify()
    return future.result()


def within(seconds: float, name: str, call: Callable[[], T]) -> T:
    """Return the result of ``call`` or raise its error. Raises TimeoutError after ``seconds``.

    ``call`` runs in a thread called ``name``, because timeouts of sockets do not cover name
    lookups, and reads from disks have no timeout. After TimeoutError the thread is abandoned. It
    does not keep the process alive.
    """
    future = _begun(name, call)
    if not wait([future], seconds).done:
        raise TimeoutError(f"no answer within {seconds:g} s")
    return future.result()


def _begun(name: str, call: Callable[[], T]) -> Future[T]:
    future = Future[T]()

    def attempt() -> None:
        try:
            future.set_result(call())
        except Exception as error:  # handed to the waiting thread
            future.set_exception(error)

    threading.Thread(target=attempt, name=name, daemon=True).start()
    return future
