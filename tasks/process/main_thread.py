"""Lend the main thread of a trainer to the users' functions, one at a time.

Theory of operation. Python runs signal handlers in the main thread, and allows them to be set only
there. So users' functions run in the main thread if it is free. The first function that is open has
the main thread until it ends, also while it is paused. Functions that are opened meanwhile run in
threads of their own. The trainer's own work runs in another thread.

A user's signal handler may raise at any moment, whatever the main thread is doing. If it raised in
waiting code of Penstock's, it would break the state on which other threads rely. So the main thread
waits for a condition, never for a wake-up that could be lost, and a handler's exception is raised
when the function continues.
"""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable
from queue import SimpleQueue
from typing import NoReturn

Wake = SimpleQueue[None]


def wait_until(condition: Callable[[], bool], wake: Wake) -> BaseException | None:
    """Wait until ``condition()`` holds; it is checked after each ``wake``.

    Return the last exception that a signal handler raised meanwhile, if any.
    """
    raised: BaseException | None = None
    while not condition():
        try:
            wake.get()
        except BaseException as error:  # anything the user's handler may raise
            raised = error
    return raised


class MainThread:
    """Lends the main thread. Before ``lend`` is called it is never free."""

    def __init__(self) -> None:
        self._wake: Wake = SimpleQueue()
        self._lends = False
        self._job: Callable[[], None] | None = None

    def lend(self, serve: Callable[[], None]) -> NoReturn:
        """Run the jobs that take the main thread, one after another. Called in the main thread.

        ``serve`` runs in a thread of its own, and finds the main thread free.
        """
        self._lends = True
        threading.Thread(target=serve, name="serve", daemon=True).start()
        while True:
            try:
                raised = wait_until(lambda: self._job is not None, self._wake)
                if raised is not None:  # no user's function ran that could get it
                    traceback.print_exception(raised)
                if self._job is not None:
                    self._job()
            except BaseException:  # also one from a signal handler
                traceback.print_exc()

    def take(self, job: Callable[[], None]) -> bool:
        """Run ``job`` in the main thread if that is free; return True if so.

        The job must end with ``give_back``. Until then it is called again whenever it ends, as it
        does when a signal handler raises in it.
        """
        if not self._lends or self._job is not None:
            return False
        self._job = job
        self._wake.put(None)
        return True

    def give_back(self, job: Callable[[], None]) -> None:
        """Free the main thread from ``job``. Do nothing if ``job`` does not have it."""
        if self._job == job:
            self._job = None


#: The main thread of this process.
MAIN_THREAD = MainThread()
