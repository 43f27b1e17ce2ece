"""Restarts services that should run and do not.

It checks four times a second, in the scheduler, in the agent and in a watching client. Whichever of
them is killed, any survivor restarts it. A service that keeps ending soon after its start is
restarted ever more slowly. One that is stopped is continued or killed (``app.host.stopped``).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ...profiling.base.errors import PenstockError, UsageError
from ..broker import server
from ..host import locks, logs
from ..host.settings import Settings
from ..host.stopped import StoppedServices
from . import services

log = logging.getLogger(__name__)

#: Seconds between two looks of a supervisor.
POLL = 0.25
#: A service that ran for this many seconds was healthy; after its end it is restarted at once.
HEALTHY_AFTER = 10.0
#: The longest wait between two restarts of a service that keeps ending (seconds).
MAX_RESTART_DELAY = 10.0


class Supervisor(threading.Thread):
    """Restarts services that should run and do not. Use it as a context manager or just start it.

    A service that ends soon after each start is restarted after 0.5, 1, 2 … 10 s.
    """

    def __init__(
        self, settings: Settings, others: Callable[[], Iterable[tuple[str, int]]] = tuple
    ) -> None:
        """``others`` returns further processes that must not stay stopped: their names and ids."""
        super().__init__(name="supervisor", daemon=True)
        self._settings = settings
        self._others = others
        self._stopped = StoppedServices(settings.run)
        self._over = threading.Event()
        self._restarts: dict[str, _Restarts] = {}

    def __enter__(self) -> Supervisor:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()

    def trouble(self) -> str | None:
        """The service that keeps ending, with the end of its log; None while all is well."""
        for name, past in list(self._restarts.items()):
            if past.early_exits >= 3 and not past.is_healthy(time.monotonic()):
                words = logs.tail(self._settings.logs / f"{name}.log")
                return f"{name} was started {past.early_exits} times and ended each time:\n{words}"
        return None

    def run(self) -> None:
        last_error = ""
        while not self._over.wait(POLL):
            try:
                self._stopped.look(self._others())
                self._check()
            except (PenstockError, OSError) as error:
                # The thread must survive this, or nothing is restarted; the next look retries.
                if str(error) != last_error:
                    log.warning("a service could not be restarted: %s", error)
                last_error = str(error)

    def _check(self) -> None:
        desired = services.desired_state(self._settings)
        if desired is None:
            return
        names = [service.name for service in desired.services]
        if self._settings.broker is None:
            names.insert(0, server.NAME)
        if all(locks.is_running(self._settings.run, name) for name in names):
            return
        try:
            with locks.hold(self._settings.run, services.CHANGE):
                self._restart()
        except UsageError:
            return  # another process is changing the services

    def _restart(self) -> None:
        desired = services.desired_state(self._settings)
        if desired is None:
            return
        if self._settings.broker is None and self._is_due(server.NAME):
            server.start(self._settings)
        for service in desired.services:
            if self._is_due(service.name):
                services.spawn(self._settings, service)

    def _is_due(self, name: str) -> bool:
        if locks.is_running(self._settings.run, name):
            return False
        now = time.monotonic()
        past = self._restarts.get(name, _Restarts())
        if now < past.not_before:
            return False
        self._restarts[name] = past.next_restart(now)
        log.warning("%s was not running: starting it", name)
        return True


@dataclass(frozen=True, slots=True)
class _Restarts:
    """How often in a row a service ended soon, and when it may be restarted (monotonic seconds)."""

    early_exits: int = 0
    not_before: float = -1e9

    def is_healthy(self, now: float) -> bool:
        return now - self.not_before > HEALTHY_AFTER

    def next_restart(self, now: float) -> _Restarts:
        early_exits = 1 if self.is_healthy(now) else self.early_exits + 1
        wait = 0.0 if early_exits == 1 else min(MAX_RESTART_DELAY, 0.5 * 2 ** (early_exits - 2))
        return _Restarts(early_exits, now + wait)
