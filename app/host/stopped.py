"""Find services that somebody has stopped, continue them, and end those that stay stopped.

Theory of operation. Any process of the same user may stop a service: by a signal (SIGSTOP, job
control), or as its tracer (a debugger, a trial that attaches to its parent). A stopped service
keeps its lock and its connections, so to all others it looks alive, and its clients wait for ever.
A service that *ends* is replaced at once. So the watcher of services continues a stopped service,
and kills it if that does not help. Until the service is dead it holds its lock, so there are never
two.

The kernel lists each thread as stopped (``T``, ``t``) or not, and load does not change that. A
thread that runs between two looks, as under ``strace``, has switched contexts meanwhile; its next
stop counts as a new one. Times are sums over the watcher's own looks: time in which the watcher
itself was stopped, or got no processor, does not count.

A service that a signal has stopped gets SIGCONT after ``LIMIT`` seconds, and loses nothing. If it
is still stopped after ``GRACE`` more seconds, it is killed. A service that a tracer holds cannot be
continued from outside. If the tracer is a trainer, or was started by one, the tracer is killed;
otherwise the service is. A service with a terminal belongs to its user, who may have pressed
Ctrl-Z, and is left alone.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from ...tasks.process.lifeline import MARK_VARIABLE
from . import locks
from .launcher import stat_fields
from .pidfd import Pidfd

log = logging.getLogger(__name__)

#: Seconds for which a service must have been stopped before it is continued.
LIMIT = 5.0
#: Seconds after that in which the service must run again, or else it is killed.
GRACE = 3.0
#: Seconds between two looks.
INTERVAL = 1.0
#: The locks of services that another process starts again when they end.
_SERVICES = ("broker", "scheduler", "agent", "launcher")
_SWITCHES = re.compile(r"ctxt_switches:\s+(\d+)")
_TRACER = re.compile(r"TracerPid:\s+(\d+)")


@dataclass(frozen=True, slots=True)
class Stop:
    """A stopped thread. ``tracer`` is the process that holds it; 0 if a signal stopped it."""

    thread: int
    tracer: int
    #: The number of times that the thread has switched contexts.
    switches: int

    def __str__(self) -> str:
        if not self.tracer:
            return "was stopped by a signal"
        with suppress(psutil.Error):
            return f"is held by its tracer, {psutil.Process(self.tracer).name()} ({self.tracer})"
        return "is held by a tracer"


def stop_of(pid: int) -> Stop | None:
    """Return the first stopped thread of process ``pid``; None without one, or if it has ended."""
    tasks = f"/proc/{pid}/task"
    with suppress(OSError):
        for thread in os.listdir(tasks):  # noqa: PTH208 - names, four times cheaper than paths
            if stat_fields(pid, thread)[0] in "Tt":
                status = Path(tasks, thread, "status").read_text(errors="replace")
                tracer = _TRACER.search(status)
                switches = sum(map(int, _SWITCHES.findall(status)))
                return Stop(int(thread), int(tracer[1]) if tracer else 0, switches)
    return None


def services_in(run: Path) -> Iterator[tuple[str, int]]:
    """Yield name and process id of each service that runs, workers and launcher included."""
    workers = (path.stem for path in run.glob("device-*.lock"))
    for name in (*_SERVICES, *workers):
        if (pid := locks.pid_of(run, name)) is not None:
            yield name, pid


def stopped_services(run: Path) -> Iterator[tuple[str, int, Stop]]:
    """Yield name, process id and stop of each service that is stopped at this moment."""
    for name, pid in services_in(run):
        if (stop := stop_of(pid)) is not None:
            yield name, pid, stop


def has_terminal(pid: int) -> bool:
    """Return True if the process has a terminal, so that its user may have stopped it there."""
    try:
        return stat_fields(pid)[4] != "0"
    except OSError:
        return False


def stop_words(name: str, pid: int, stop: Stop) -> str:
    """Describe a stopped service, and what happens next or what the user can do."""
    sentence = f"{name} (process {pid}) {stop}"
    if has_terminal(pid):
        return f"{sentence}; continue it in its terminal with `fg`, or with `kill -CONT {pid}`"
    return f"{sentence}; it is continued, or else replaced, after {LIMIT:g} s"


def continue_stopped(run: Path) -> None:
    """Continue at once all services that a signal has stopped, since the user needs them now."""
    for name, pid, stop in stopped_services(run):
        if not stop.tracer and not has_terminal(pid) and _send(pid, stop, signal.SIGCONT):
            log.warning("%s (process %d) %s: it is continued", name, pid, stop)


@dataclass(slots=True)
class _Standing:
    """A service that has been at this stop for ``seconds``."""

    stop: Stop
    seconds: float = 0.0
    warned: bool = False


class StoppedServices:
    """Continues or kills stopped services in the folder ``run``. One thread calls ``look``."""

    def __init__(self, run: Path, clock: Callable[[], float] = time.monotonic) -> None:
        """``clock`` returns monotonic seconds."""
        self._run = run
        self._clock = clock
        self._looked = clock()
        self._standing: dict[int, _Standing] = {}

    def look(self, others: Iterable[tuple[str, int]] = ()) -> None:
        """Continue or kill stopped services, if a look is due.

        ``others`` are names and process ids of further processes to treat like services.
        """
        passed = self._clock() - self._looked
        if passed < INTERVAL:
            return
        self._looked += passed
        before, self._standing = self._standing, {}
        for name, pid in (*services_in(self._run), *others):
            stop = stop_of(pid)
            if stop is None or has_terminal(pid):
                continue
            standing = before.get(pid)
            if standing is None or standing.stop != stop:
                standing = _Standing(stop)
            else:
                standing.seconds += min(passed, 2 * INTERVAL)
            self._standing[pid] = standing
            self._act(name, pid, standing)

    def _act(self, name: str, pid: int, standing: _Standing) -> None:
        stop = standing.stop
        if standing.seconds >= LIMIT + GRACE:
            if _send(pid, stop, signal.SIGKILL):
                log.warning("%s (process %d) %s and does not go on: killed", name, pid, stop)
        elif standing.seconds >= LIMIT and not standing.warned:
            standing.warned = True
            if not stop.tracer:
                if _send(pid, stop, signal.SIGCONT):
                    log.warning("%s (process %d) %s: it is continued", name, pid, stop)
            # Attaching sent it SIGSTOP, which would keep it stopped after the tracer's end.
            elif (
                _is_trainers(stop.tracer)
                and _send(pid, stop, signal.SIGCONT)
                and _send(pid, stop, signal.SIGKILL, stop.tracer)
            ):
                log.warning("%s (process %d) %s, a trainer's: that is killed", name, pid, stop)


class Stillness:
    """Measures for how long a process has stood still. Use from one thread. Load does not count."""

    def __init__(self) -> None:
        self._last_state: object = None
        self._looked = 0.0
        self._seconds = 0.0

    def seconds(self, pid: int, *, asleep: bool = False) -> float:
        """Return the seconds for which ``pid`` was found at the same stop by each call.

        With ``asleep``, return instead the seconds for which no thread of the process has run.
        """
        now = time.monotonic()
        passed, self._looked = min(now - self._looked, 2 * INTERVAL), now
        before, self._last_state = self._last_state, _sleep_of(pid) if asleep else stop_of(pid)
        same = self._last_state is not None and self._last_state == before
        self._seconds = self._seconds + passed if same else 0.0
        return self._seconds


def _sleep_of(pid: int) -> dict[str, int] | None:
    """Return the context switches by thread; None if a thread runs, or waits to run or for I/O."""
    tasks, switches = f"/proc/{pid}/task", {}
    try:
        for thread in os.listdir(tasks):  # noqa: PTH208 - as above
            if stat_fields(pid, thread)[0] in "RD":
                return None
            status = Path(tasks, thread, "status").read_text(errors="replace")
            switches[thread] = sum(map(int, _SWITCHES.findall(status)))
    except OSError:
        return None
    return switches


def _is_trainers(pid: int) -> bool:
    """Return True if the process is a trainer, or was started by one."""
    with suppress(psutil.Error):
        return MARK_VARIABLE in psutil.Process(pid).environ()
    return False


def _send(pid: int, stop: Stop, signum: signal.Signals, target: int | None = None) -> bool:
    """Send ``signum`` to ``target`` (default: process ``pid``) if ``pid`` is still at ``stop``.

    Returns True if the signal was sent.
    """
    try:
        with Pidfd.of(pid if target is None else target) as process:
            return stop_of(pid) == stop and process.send(signum)
    except OSError:
        return False
