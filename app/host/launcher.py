"""Starts processes that run users' code, and ends each of them with all that it started.

Theory of operation. The end of such a process is known from the process itself, by its *pidfd*, and
never from the end of a pipe or socket alone: a child of the user's code may hold those open for
ever. What it started is found although it may have left every group it was in:

- The launcher's process is the *subreaper* of all below it: whoever loses its parent becomes our
  child, daemons included. So all that was ever started here is below us, however it was started.
- Each process leads a session of its own, and its *mark* stands in the environment that its
  children inherit. An orphan that is in the session of one that lives, or bears its mark, is left
  alone. Any other goes at the next end.

A trainer whose launcher is killed ends its group by itself (``tasks.process.lifeline``). One that
cannot, and what has left the group, are found by their marks (``end_strays``): a mark tells the
launcher's process id and when that process was started, so it can be told whether it still lives.
"""

from __future__ import annotations

import ctypes
import logging
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path

import psutil

from ...tasks.process.lifeline import MARK_VARIABLE

log = logging.getLogger(__name__)

#: Seconds until what was killed must be gone; only a process in an uninterruptible call takes long.
KILL_LIMIT = 5.0
_PR_SET_CHILD_SUBREAPER = 36


class Process:
    """A started process. Its methods may be called from any thread."""

    def __init__(self, launcher: Launcher, popen: subprocess.Popen[bytes], mark: str) -> None:
        self.pid = popen.pid
        self.mark = mark
        self._launcher = launcher
        self._popen = popen
        self._pidfd = os.pidfd_open(popen.pid)
        self._ending = threading.Lock()
        self._left: list[str] | None = None

    def fileno(self) -> int:
        """Readable once the process has ended (a pidfd)."""
        return self._pidfd

    @property
    def alive(self) -> bool:
        return not self.wait(0.0)

    def wait(self, timeout: float) -> bool:
        """Whether it ends within ``timeout`` seconds."""
        if self._left is not None:
            return True
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        return bool(poll.poll(timeout * 1000))

    def end(self) -> list[str]:
        """End it and all that it started; which of its children still ran, as ``name (pid)``."""
        with self._ending:
            if self._left is None:
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
                if not self.wait(KILL_LIMIT):
                    log.error("process %d does not die", self.pid)
                # Reaped here before others may take it for an orphan: its status would be lost.
                with suppress(subprocess.TimeoutExpired):
                    self._popen.wait(KILL_LIMIT)
                # Its children are ours now.
                self._left = self._launcher.end_orphans(of=self)
                if self._left:
                    log.warning(
                        "process %d had started: %s; ended", self.pid, ", ".join(self._left)
                    )
            return self._left

    @property
    def status(self) -> int | None:
        """Its exit status, or minus the signal's number; None until ``end``."""
        return self._popen.returncode

    def children(self) -> int:
        """How many processes it has started that still run."""
        return sum(map(_runs, _children(self.pid)))

    def close(self) -> None:
        """End it, and give back what is held of it here. Nothing the second time."""
        self.end()
        with self._ending:
            pidfd, self._pidfd = self._pidfd, -1
            if pidfd >= 0:
                os.close(pidfd)


class Launcher:
    """Starts processes; one a process of ours, because orphans come to the process."""

    def __init__(self) -> None:
        self._mark = f"{os.getpid()}:{_started(os.getpid())}"
        self._count = count()
        self._lock = threading.Lock()
        self._processes: dict[int, Process] = {}
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def start(
        self,
        command: Sequence[str],
        *,
        variables: Mapping[str, str],
        descriptors: Sequence[int],
        output: int,
        cores: Sequence[int] = (),
    ) -> Process:
        """Start ``command`` with ``variables`` as its environment, bound to ``cores`` (() for any).

        It inherits ``descriptors``, and writes to the file ``output``. OSError where it cannot be.
        """
        mark = f"{self._mark}:{next(self._count)}"
        # Over start and registration: what is a child of ours and not known is taken for an orphan.
        with self._lock:
            popen = subprocess.Popen(
                command,
                env={**variables, MARK_VARIABLE: mark},
                pass_fds=descriptors,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
            process = self._processes[popen.pid] = Process(self, popen, mark)
        if cores:
            _bind(popen.pid, cores)
        return process

    def end_orphans(self, of: Process) -> list[str]:
        """End whoever is below us and of no process that lives; their names and numbers.

        ``of`` has ended, so what it had started is among them.
        """
        found: dict[int, str] = {}
        deadline = time.monotonic() + KILL_LIMIT
        with self._lock:
            while orphans := list(self._orphans()):
                for orphan in orphans:
                    with suppress(psutil.Error):
                        found.setdefault(orphan.pid, f"{orphan.name()} ({orphan.pid})")
                        orphan.kill()
                self._reap()
                if time.monotonic() > deadline:
                    log.error("these processes do not die: %s", ", ".join(found.values()))
                    break
                time.sleep(0.002)
            self._reap()
            if self._processes.get(of.pid) is of:  # its number may be another one's by now
                del self._processes[of.pid]
        return list(found.values())

    def _orphans(self) -> Iterator[psutil.Process]:
        """Processes that run below us and belong to no process of ours that lives."""
        living = {pid: process.mark for pid, process in self._processes.items() if process.alive}
        ours = os.getsid(0)
        for child in psutil.Process().children():
            if child.pid in self._processes:
                continue
            with suppress(psutil.Error, OSError):
                session = os.getsid(child.pid)
                if session == ours or session in living or _mark_of(child) in living.values():
                    continue  # a helper of our own, or a daemon of one that lives
                if child.status() != psutil.STATUS_ZOMBIE:
                    yield child
                yield from child.children(recursive=True)

    def reap(self) -> None:
        """Take note of adopted processes that have ended: nobody else will. Cheap, and no wait."""
        if self._lock.acquire(blocking=False):  # else at the next call: an end may take seconds
            try:
                self._reap()
            finally:
                self._lock.release()

    def _reap(self) -> None:
        for pid in _children(os.getpid()):
            if pid not in self._processes:
                with suppress(OSError):
                    if os.getsid(pid) != os.getsid(0):
                        os.waitpid(pid, os.WNOHANG)


def end_strays(home: str) -> list[str]:
    """End what trainers of the state folder ``home`` left whose worker is gone; names and numbers.

    Only processes of our user and of our process id namespace, because marks mean numbers there.
    """
    found = []
    namespace = Path("/proc/self/ns/pid").readlink()
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError, ValueError):
            if process.uids().real != os.getuid():
                continue
            variables = process.environ()
            mark = variables.get(MARK_VARIABLE, "")
            if not mark or variables.get("PENSTOCK_HOME") != home:
                continue
            if Path(f"/proc/{process.pid}/ns/pid").readlink() != namespace or _lives(mark):
                continue
            found.append(f"{process.name()} ({process.pid})")
            process.kill()
    return found


def _lives(mark: str) -> bool:
    """Whether the launcher that made ``mark`` still runs."""
    pid, started, _ = mark.split(":")
    try:
        return _started(int(pid)) == int(started)
    except OSError:
        return False


def _started(pid: int) -> int:
    """When it was started, in ticks since the machine's start. OSError where it is gone."""
    return int(_stat(pid)[19])


def _runs(pid: int) -> bool:
    try:
        return _stat(pid)[0] not in "ZX"  # not even where its parent has not waited for it yet
    except OSError:
        return False


def _stat(pid: int) -> list[str]:
    """What the kernel says of it, from its state on. OSError where it is gone."""
    return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()


def _mark_of(process: psutil.Process) -> str:
    return process.environ().get(MARK_VARIABLE, "")


def _children(pid: int) -> list[int]:
    """The process ids of the children of ``pid``; one that ends just now may hide others.

    Empty where the kernel does not tell them (it lacks CONFIG_PROC_CHILDREN).
    """
    found: list[int] = []
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                found += map(int, (task / "children").read_text().split())
    return found


def _bind(pid: int, cores: Sequence[int]) -> None:
    try:
        os.sched_setaffinity(pid, cores)
    except OSError as error:  # cores that a container does not have, or a child gone already
        log.warning("process %d is not bound to cores %s: %s", pid, [*cores], error)
