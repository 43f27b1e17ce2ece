"""Restart services that should run and do not.

A supervisor runs in the scheduler, in the agent and in a client that watches a study. The
supervisor checks the services four times a second. If one of these processes is killed, the others
restart it. A service that keeps ending soon after its start is restarted after growing pauses. A
service that was stopped (by SIGSTOP, for example) is continued or killed (``app.host.stopped``).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial

from ....base.backoff import Restarts
from ....base.errors import PenstockError, UsageError
from ...broker import server
from ...host import locks, logs
from ...host.settings import Settings
from ...host.stopped import StoppedServices
from . import services

log = logging.getLogger(__name__)

#: Seconds between two checks of a supervisor.
POLL = 0.25
#: The number of early ends in a row after which a service's trouble is reported.
REPORTED_ENDS = 3


class Supervisor(threading.Thread):
    """A thread that restarts services that should run and do not.

    The thread is also a context manager.
    """

    def __init__(
        self, settings: Settings, others: Callable[[], Iterable[tuple[str, int]]] = tuple
    ) -> None:
        """Create the thread.

        ``others`` returns names and ids of further processes that must not stay stopped.
        """
        super().__init__(name="supervisor", daemon=True)
        self._settings = settings
        self._others = others
        self._stopped = StoppedServices(settings.run)
        self._over = threading.Event()
        self._restarts: dict[str, Restarts] = {}

    def __enter__(self) -> Supervisor:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()

    def trouble(self) -> str | None:
        """Return a message about a service that keeps ending, with the last lines of its log.

        Returns None if no service keeps ending.
        """
        for name, past in list(self._restarts.items()):
            if past.early >= REPORTED_ENDS and not past.is_healthy(time.monotonic()):
                words = logs.tail(self._settings.logs / f"{name}.log")
                return f"{name} was started {past.early} times and ended each time:\n{words}"
        return None

    def run(self) -> None:
        last_error = ""
        while not self._over.wait(POLL):
            try:
                self._stopped.look(self._others())
                self._check()
            except (PenstockError, OSError) as error:
                # The thread must survive errors, or nothing is restarted. The next check retries.
                if str(error) != last_error:
                    log.warning("a service could not be restarted: %s", error)
                last_error = str(error)

    def _check(self) -> None:
        if all(locks.is_running(self._settings.run, name) for name in self._starts()):
            return
        # The lock is refused while another process is changing the services.
        with suppress(UsageError), locks.hold(self._settings.run, services.CHANGE):
            for name, start in self._starts().items():
                if self._is_due(name):
                    start()

    def _starts(self) -> dict[str, Callable[[], object]]:
        """Return the names of the services that should run, with the functions that start them."""
        desired = services.desired_state(self._settings)
        if desired is None:
            return {}
        starts: dict[str, Callable[[], object]] = {}
        if self._settings.broker is None:
            starts[server.NAME] = partial(server.start, self._settings)
        for service in desired.services:
            starts[service.name] = partial(services.spawn, self._settings, service)
        return starts

    def _is_due(self, name: str) -> bool:
        if locks.is_running(self._settings.run, name):
            return False
        now = time.monotonic()
        past = self._restarts.get(name, Restarts())
        if past.due <= past.began:  # the end of the service was not noted yet
            past = past.ended(now)
        is_due = now >= past.due
        self._restarts[name] = past.started(now) if is_due else past
        if not is_due:
            return False
        log.warning("%s was not running: starting it", name)
        return True
