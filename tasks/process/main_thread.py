"""The main thread of a trainer of functions, lent to one of them at a time.

Theory of operation. Python runs signal handlers in the main thread, and lets them be set there
alone. So users' functions run there where it is free: the first one that is open has it until it
ends, also while it is paused, and further ones have threads of their own meanwhile. Another thread
does the trainer's own work.

A handler of the user's may raise, at any moment, in whatever the main thread is in the middle of.
While it waits in code of ours that would break what other threads rely on. So it waits for a
condition, never for a wake-up that could be lost, and what a handler raised comes when it goes on.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from queue import SimpleQueue
from typing import NoReturn

Wake = SimpleQueue[None]


def wait_until(condition: Callable[[], bool], wake: Wake) -> BaseException | None:
    """Wait until ``condition()``, which is looked at with each ``wake``.

    Gives what a signal handler raised meanwhile, the last of it.
    """
    raised: BaseException | None = None
    while not condition():
        try:
            wake.get()
        except BaseException as error:  # whatever the user's handler raises
            raised = error
    return raised


class MainThread:
    """Lends the main thread; without ``lend`` it is never free."""

    def __init__(self) -> None:
        self._wake: Wake = SimpleQueue()
        self._lends = False
        self._job: Callable[[], None] | None = None

    def lend(self) -> NoReturn:
        """Called in the main thread: run what it is lent to, one after another."""
        self._lends = True
        while True:
            try:
                raised = wait_until(lambda: self._job is not None, self._wake)
                if raised is not None:  # when nothing of the user's ran that it could end
                    traceback.print_exception(raised)
                if self._job is not None:
                    self._job()
            except BaseException:  # a handler's, too
                traceback.print_exc()

    def take(self, job: Callable[[], None]) -> bool:
        """Run ``job`` in the main thread, if that is free; it must end by ``give_back``.

        It is called again where a signal handler raises in it, until then.
        """
        if not self._lends or self._job is not None:
            return False
        self._job = job
        self._wake.put(None)
        return True

    def give_back(self, job: Callable[[], None]) -> None:
        """``job`` is over; nothing where it has not got the main thread."""
        if self._job == job:
            self._job = None


#: Of this process.
MAIN_THREAD = MainThread()
