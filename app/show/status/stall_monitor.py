"""Monitor the reason why a study makes no progress, for commands that watch the study.

The monitor collects the facts that ``app.show.status.waiting`` judges: rows of the ledger, locks
and logs of the services on this machine, and the broker's answer to a test write. Services that are
starting are normal, and so is a trial between two segments (epochs sent as one task). So a reason
is reported only after the reason has lasted for a while.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ....base.errors import BackendError, PenstockError
from ....scheduler.model.events import AttemptFailed, AttemptLost, Event
from ....scheduler.model.study import number_of
from ....wire.messages import Forged
from ...broker import connection, presence, protocol
from ...broker.device_records import parse_device_record
from ...broker.server import broker_url
from ...common.ports import LiveDevice
from ...host import locks, logs
from ...host.settings import Settings
from ...host.stopped import stop_words, stopped_services
from ...server.services import services
from .waiting import AGAIN, Services, Setback, why_waiting

if TYPE_CHECKING:
    from pathlib import Path

    import redis

    from ...ledger.reader import Reader
    from ...ledger.rows import StudyRow

#: ``CHECK_INTERVAL`` is the number of seconds between two checks. ``REPORT_AFTER`` is the number of
#: seconds for which a reason must last before the reason is reported.
CHECK_INTERVAL = 0.5
REPORT_AFTER = 1.0
#: The length of the rest after a check that found no reason. ``REST_FACTOR`` is the length as a
#: multiple of the check's CPU time, so that checks take a hundredth of a CPU core. ``MAX_REST`` is
#: the greatest length in seconds.
REST_FACTOR, MAX_REST = 100.0, 3.0
#: The number of seconds within which the broker must answer, so that watchers do not wait longer.
BROKER_TIMEOUT = 0.5
_PROBE = f"{protocol.PREFIX}probe"


class StallMonitor:
    """A monitor of the ledger and the services, which finds the reason that stalls a study.

    ``restart_trouble`` returns the supervisor's message about services that keep ending, or None.
    """

    def __init__(
        self,
        settings: Settings,
        reader: Reader,
        restart_trouble: Callable[[], str | None] = lambda: None,
    ) -> None:
        self._settings = settings
        self._reader = reader
        self._restart_trouble = restart_trouble
        self._after = 0
        self._setbacks: list[Event] = []
        # A reason must last for a while before it is reported, so the first check can wait.
        self._due = time.monotonic() + CHECK_INTERVAL
        self._since: float | None = None
        self._words: str | None = None
        self._scheduler = True

    def reason(self, study: StudyRow) -> str:
        """Return the reason why ``study`` has made no progress for a while.

        The result is empty if the study makes progress. The method may be called often, since it
        checks at most twice a second. A ledger that does not answer is not reported.
        """
        now, began = time.monotonic(), time.thread_time()
        if now < self._due:
            return self._lasting_reason(now)
        with contextlib.suppress(BackendError):
            self._words = self.now(study)
        if self._words is None:
            self._since = None
        elif self._since is None:
            self._since = now
        rest = CHECK_INTERVAL
        if self._words is None:
            rest = min(MAX_REST, max(rest, REST_FACTOR * (time.thread_time() - began)))
        self._due = time.monotonic() + rest
        return self._lasting_reason(now)

    def still(self) -> bool:
        """Return True if the study has stood still for a while because there is no scheduler.

        The answer is as of the last call of ``reason``.
        """
        return not self._scheduler and bool(self._lasting_reason(time.monotonic()))

    def _lasting_reason(self, now: float) -> str:
        is_lasting = self._since is not None and now - self._since >= REPORT_AFTER
        return self._words or "" if is_lasting else ""

    def now(self, study: StudyRow) -> str | None:
        """Return the reason why ``study`` makes no progress at this moment.

        The result is None if the study makes progress. Raises BackendError if the ledger does not
        answer.
        """
        if study.finished_at is not None:
            return None
        newest = self._reader.newest()
        for event in reversed(self._reader.last_attempts(study.id, self._after, 2 * AGAIN)):
            if event is None or _is_shown(event):
                self._setbacks = []
            else:
                self._setbacks = [event, *self._setbacks][:AGAIN]
        self._after = newest
        devices, running = self._reader.devices(), self._reader.running()
        setbacks = [self._setback(event) for event in self._setbacks]
        present = self._services()
        self._scheduler = present.scheduler
        return why_waiting(study, devices, running, setbacks, present)

    def _setback(self, event: Event) -> Setback:
        assert isinstance(event, AttemptFailed | AttemptLost)
        trial = number_of(event.trial)
        if isinstance(event, AttemptFailed):
            return Setback(f"its trainer died: {event.message}", trial)
        log = self._trainers_log() if "trainer" in event.reason else ""
        return Setback(event.reason, trial, event.refused, log)

    def _trainers_log(self) -> str:
        """Return the last line of the newest trainer log on this machine.

        The newest log is the one that was written to most recently. The result is empty if there is
        no log.
        """
        newest = max(self._settings.logs.glob("trainer-*.log"), key=_written_at, default=None)
        return "" if newest is None else logs.tail(newest, lines=1).strip()

    def _services(self) -> Services:
        settings = self._settings
        for name, pid, stop in stopped_services(settings.run):
            return Services(stopped=stop_words(name, pid, stop))
        if settings.broker is None and not locks.is_running(settings.run, "scheduler"):
            # The scheduler would start the broker, so a missing broker is not the cause.
            return Services(scheduler=False, trouble=self._exit_loop(self._restart_trouble() or ""))
        try:
            with connection.translate_errors(broker_url(settings)):
                return self._asked()
        except PenstockError as error:
            return Services(broker=str(error))

    def _exit_loop(self, restart_trouble: str) -> str:
        """Return a message if the supervisor reports that the scheduler keeps ending.

        The result is empty otherwise.
        """
        if not restart_trouble.startswith("scheduler"):
            return ""
        log = self._settings.logs / "scheduler.log"
        words = logs.tail(log, lines=1).strip()
        return f"it exits every time it is started: {words} (see {log})"

    @cached_property
    def _client(self) -> redis.Redis:
        return connection.connect(broker_url(self._settings), timeout=BROKER_TIMEOUT)

    def _asked(self) -> Services:
        """Ask the broker about the services, and return the state of the services.

        Raises PenstockError if the broker does not answer or does not accept a write.
        """
        settings, url = self._settings, broker_url(self._settings)
        client = self._client
        client.set(_PROBE, 1, px=1000)
        is_served, trouble = presence.is_served(client, url), presence.trouble(client, url)
        pid = locks.pid_of(settings.run, "scheduler")
        if not is_served and trouble is None and pid is not None:
            log = settings.logs / "scheduler.log"
            trouble = f"its process {pid} does not report to the broker: is it suspended? See {log}"
        records: Any = client.hgetall(protocol.DEVICES)
        devices = [live for each in records.items() if (live := _live(*each)) is not None]
        return Services(
            scheduler=is_served or pid is not None,
            trouble="" if is_served else trouble or "",
            agent=self._agent() or presence.ending(client, url) or "",
            leaving={each.device.name for each in devices if each.draining},
            announced=[each.device for each in devices],
        )

    def _agent(self) -> str:
        """Return the reason why no node agent serves the devices of this machine.

        The result is empty if an agent serves the devices, or if no agent should run here.
        """
        settings = self._settings
        if services.desired_state(settings) is None or locks.is_running(settings.run, "agent"):
            return ""
        log = settings.logs / "agent.log"
        words = logs.tail(log, lines=1).strip()
        return f"the node agent exits as soon as it is started: {words} (see {log})"


def _is_shown(event: Event) -> bool:
    """Return True if ``event`` is a failure of user code.

    Such a failure is shown with its trial.
    """
    return isinstance(event, AttemptFailed) and event.kind != "died"


def _written_at(log: Path) -> float:
    """Return the time of the last write to the log, in seconds since 1970.

    Return 0 if the log was removed.
    """
    try:
        return log.stat().st_mtime
    except OSError:
        return 0.0


def _live(name: str, record: str) -> LiveDevice | None:
    try:
        return parse_device_record(name, record)
    except Forged:
        return None  # the scheduler ignores it, too
