"""Revives services that should run and do not.

It checks four times a second, in the scheduler, in the agent and in a watching client. Whichever of
them is killed, any survivor revives it. A service that keeps ending soon after its start is revived
ever more slowly.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass

from ...profiling.base.errors import PenstockError, UsageError
from ..broker import server
from ..host import locks, logs
from ..host.settings import Settings
from . import services

log = logging.getLogger(__name__)

#: Seconds between two looks of a reviver.
POLL = 0.25
#: A service that ran for this many seconds was healthy; after its end it is revived at once.
WELL = 10.0
#: The longest wait between two revivals of a service that keeps ending (seconds).
LONGEST_WAIT = 10.0


class Reviver(threading.Thread):
    """Revives services that should run and do not. Use it as a context manager or just start it.

    A service that ends soon after each start is revived after 0.5, 1, 2 … 10 s.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__(name="reviver", daemon=True)
        self._settings = settings
        self._over = threading.Event()
        self._revivals: dict[str, _Revivals] = {}

    def __enter__(self) -> Reviver:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()

    def trouble(self) -> str | None:
        """The service that keeps ending, with the end of its log; None while all is well."""
        for name, past in list(self._revivals.items()):
            if past.soon >= 3 and not past.well(time.monotonic()):
                words = logs.tail(self._settings.logs / f"{name}.log")
                return f"{name} was started {past.soon} times and ended each time:\n{words}"
        return None

    def run(self) -> None:
        while not self._over.wait(POLL):
            try:
                self._look()
            except (PenstockError, OSError) as error:
                # The thread must survive this, or nothing would be revived; the next look retries.
                log.warning("a service could not be restarted: %s", error)

    def _look(self) -> None:
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
                self._revive()
        except UsageError:
            return  # another process is changing the services

    def _revive(self) -> None:
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
        past = self._revivals.get(name, _Revivals())
        if now < past.not_before:
            return False
        self._revivals[name] = past.another(now)
        log.warning("%s was not running: starting it", name)
        return True


@dataclass(frozen=True, slots=True)
class _Revivals:
    """How often in a row a service ended soon, and when it may be revived (monotonic seconds)."""

    soon: int = 0
    not_before: float = -1e9

    def well(self, now: float) -> bool:
        return now - self.not_before > WELL

    def another(self, now: float) -> _Revivals:
        soon = 1 if self.well(now) else self.soon + 1
        wait = 0.0 if soon == 1 else min(LONGEST_WAIT, 0.5 * 2 ** (soon - 2))
        return _Revivals(soon, now + wait)
