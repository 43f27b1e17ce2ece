"""Start processes that run users' code, and end each with all processes that it started.

Theory of operation. The end of such a process is known from the process itself, by its *pidfd*, and
never only from the end of a pipe or socket: a child of the user's code may hold those open forever.
The processes that it started are searched for and killed until none is found (``end_found``), since
one may start another while it is being killed. They are found even if they have left their group:

- Each process leads a session of its own, and its *mark* is in the environment that its children
  inherit. A descendant is found by the mark (``end_marked``), as long as it keeps its environment.
  A mark contains the starter's process id and start time, which show if the starter still runs. So
  others find the processes that a killed starter left (``end_strays``). All marks of a starter have
  the same length, so that a process forked from a marked one can overwrite the mark with its own.
- The launcher process starts nothing else, so it can be the *subreaper* of everything below it: any
  descendant that loses its parent becomes its child, daemons included, whatever their environment.
  An orphan in the session of a living process, or with its mark, is left alone. All other orphans
  are ended when the next process ends (``Launcher``). A process with children of other kinds, as
  the scheduler, goes by marks alone (``app.host.line_process``).

A trainer whose launcher is killed also ends its group by itself (``tasks.process.lifeline``).
"""

from __future__ import annotations

import logging
import math
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

import psutil

from ...tasks.process.forking import adopt_orphans
from ...tasks.process.lifeline import MARK_VARIABLE
from .pidfd import Pidfd

log = logging.getLogger(__name__)

#: Seconds until a killed process must be gone. Only an uninterruptible call takes long.
KILL_TIMEOUT = 5.0
#: The same for processes that are found by their mark, whose enders cannot wait longer.
MARKED_TIMEOUT = 1.0
_numbers = count()


class Process:
    """A started process. Its methods may be called from any thread."""

    def __init__(
        self, launcher: Launcher, child: subprocess.Popen[bytes] | Adopted, mark: str
    ) -> None:
        self.pid = child.pid
        self.mark = mark
        self._launcher = launcher
        self._child = child
        self._pidfd = Pidfd.of(child.pid)
        self._ending = threading.Lock()
        self._survivors: list[str] | None = None

    def fileno(self) -> int:
        """Return a descriptor that becomes readable when the process has ended (a pidfd)."""
        return self._pidfd.fileno()

    @property
    def alive(self) -> bool:
        return not self.wait(0.0)

    def wait(self, timeout: float) -> bool:
        """Wait up to ``timeout`` seconds; return True if the process has ended."""
        return self._survivors is not None or self._pidfd.wait(timeout)

    def end(self) -> list[str]:
        """End the process; return the processes that it had left running, as ``name (pid)``."""
        with self._ending:
            if self._survivors is None:
                self._pidfd.send(signal.SIGKILL)
                if not self.wait(KILL_TIMEOUT):
                    log.error("process %d does not die", self.pid)
                # Reap it here before others take it for an orphan, which would lose its exit
                # status.
                with suppress(subprocess.TimeoutExpired):
                    self._child.wait(KILL_TIMEOUT)
                # The process's children are this process's now.
                self._survivors = self._launcher.end_orphans(of=self)
                if self._survivors:
                    log.warning(
                        "process %d had started: %s; ended", self.pid, ", ".join(self._survivors)
                    )
            return self._survivors

    @property
    def status(self) -> int | None:
        """The exit status, or minus the signal's number; None before ``end``."""
        return self._child.returncode

    def close(self) -> None:
        """End the process and close its pidfd. A second call does nothing."""
        self.end()
        with self._ending:
            self._pidfd.close()


class Adopted:
    """A child that another process has started for this one, with methods of a ``Popen``."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        #: The exit status, or minus the signal's number; None until the end was noticed.
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return the exit status if the child has ended, otherwise None."""
        if self.returncode is None:
            with suppress(ChildProcessError):
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                if pid:
                    self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float = math.inf) -> int:
        """Wait for the child's end; return its status. Raises ``subprocess.TimeoutExpired``."""
        deadline = time.monotonic() + timeout
        while (status := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(str(self.pid), timeout)
            time.sleep(0.002)
        return status

    def terminate(self) -> None:
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        self._send(signal.SIGKILL)

    def _send(self, signum: signal.Signals) -> None:
        if self.poll() is None:  # the number is its own until then
            os.kill(self.pid, signum)


class Launcher:
    """Starts processes. A process has one launcher, because orphans become its children."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._processes: dict[int, Process] = {}
        adopt_orphans()

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

        The new process inherits ``descriptors`` and writes to the descriptor ``output``. Raises
        OSError.
        """
        mark = new_mark()
        # Held over start and registration: an unknown child would be taken for an orphan.
        with self._lock, bound_to(cores):
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
        return process

    def adopt(self, fork: Callable[[str], int]) -> Process:
        """Take over the process that ``fork(mark)`` makes.

        ``fork`` returns the new process's id. That process leads a session of its own, has the mark
        in its environment, and has lost its parent, so that it is a child of this process.
        """
        mark = new_mark()
        with self._lock:  # as in ``start``
            pid = fork(mark)
            process = self._processes[pid] = Process(self, Adopted(pid), mark)
        return process

    def end_orphans(self, of: Process) -> list[str]:
        """End all descendants that belong to no living process. Returns their names and numbers.

        ``of`` has ended, so the processes that it had started are among them.
        """
        with self._lock:
            orphans = end_found(self._orphans, KILL_TIMEOUT)
            self._reap()
            if self._processes.get(of.pid) is of:  # the number may belong to another process by now
                del self._processes[of.pid]
        return orphans

    def _orphans(self) -> Iterator[psutil.Process]:
        """Yield the descendants that belong to no living process of this launcher."""
        self._reap()
        living = {pid: process.mark for pid, process in self._processes.items() if process.alive}
        own_session = os.getsid(0)
        for child in psutil.Process().children():
            if child.pid in self._processes:
                continue
            with suppress(psutil.Error, OSError):
                session = os.getsid(child.pid)
                if (
                    session == own_session
                    or session in living
                    or _mark_of(child) in living.values()
                ):
                    continue  # a helper of our own, or a daemon of a living process
                if child.status() != psutil.STATUS_ZOMBIE:
                    yield child
                yield from child.children(recursive=True)

    def reap(self) -> None:
        """Reap adopted processes that have ended, since nobody else does. Cheap; never waits."""
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


def new_mark() -> str:
    """Return the mark of a process that this one is about to start."""
    return f"{os.getpid()}:{_started(os.getpid())}:{next(_numbers):06}"


def end_found(find: Callable[[], Iterable[psutil.Process]], timeout: float) -> list[str]:
    """Kill the processes that ``find`` yields until it yields none, at most ``timeout`` seconds.

    Returns the names and numbers of the processes.
    """
    names: dict[int, str] = {}
    deadline = time.monotonic() + timeout
    while processes := list(find()):
        for process in processes:
            with suppress(psutil.Error):
                names.setdefault(process.pid, f"{process.name()} ({process.pid})")
                process.kill()
        if time.monotonic() > deadline:
            log.error("these processes do not die: %s", ", ".join(names.values()))
            break
        time.sleep(0.002)
    return list(names.values())


def end_marked(mark: str) -> list[str]:
    """End all processes with this ``mark``. Returns their names and numbers."""
    return end_found(
        lambda: _marked(lambda variables: variables[MARK_VARIABLE] == mark), MARKED_TIMEOUT
    )


def end_strays(home: str) -> list[str]:
    """End processes of the state folder ``home`` whose starter is gone. Returns their names."""

    def is_stray(variables: Mapping[str, str]) -> bool:
        return variables.get("PENSTOCK_HOME") == home and not _lives(variables[MARK_VARIABLE])

    return end_found(lambda: _marked(is_stray), MARKED_TIMEOUT)


def _marked(is_meant: Callable[[Mapping[str, str]], bool]) -> Iterator[psutil.Process]:
    """Yield the marked processes for whose environment ``is_meant`` returns True.

    Only processes of this user and process id namespace count, where a mark's numbers are valid.
    """
    namespace = Path("/proc/self/ns/pid").readlink()
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError, ValueError):
            if process.uids().real != os.getuid():
                continue
            variables = process.environ()
            if MARK_VARIABLE not in variables or not is_meant(variables):
                continue
            if Path(f"/proc/{process.pid}/ns/pid").readlink() == namespace:
                yield process


def _lives(mark: str) -> bool:
    """Return True if the process that made ``mark`` still runs."""
    pid, started, _ = mark.split(":")
    try:
        return _runs(int(pid)) and _started(int(pid)) == int(started)
    except OSError:
        return False


def _started(pid: int) -> int:
    """Return the start time of ``pid`` in ticks since boot. Raises OSError if it is gone."""
    return int(stat_fields(pid)[19])


def count_children(pid: int) -> int:
    """Return the number of running children of the process ``pid``."""
    return sum(map(_runs, _children(pid)))


def is_below(pid: int, ancestor: int) -> bool:
    """Return True if ``pid`` is ``ancestor`` or one of its descendants."""
    with suppress(psutil.Error):
        return pid == ancestor or ancestor in {each.pid for each in psutil.Process(pid).parents()}
    return False


def _runs(pid: int) -> bool:
    try:
        return stat_fields(pid)[0] not in "ZX"  # not even if its parent has not waited for it yet
    except OSError:
        return False


def stat_fields(pid: int, thread: int | str = "") -> list[str]:
    """Return the kernel's fields of a process, from its state on. Raises OSError if it is gone.

    With ``thread``, return the fields of that thread of the process.
    """
    of = f"task/{thread}/" if thread else ""
    return Path(f"/proc/{pid}/{of}stat").read_text(errors="replace").rpartition(")")[2].split()


def _mark_of(process: psutil.Process) -> str:
    return process.environ().get(MARK_VARIABLE, "")


def _children(pid: int) -> list[int]:
    """Return the process ids of the children of ``pid``. A child that is ending may hide others.

    Empty if the kernel does not list children (without CONFIG_PROC_CHILDREN).
    """
    children: list[int] = []
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                children += map(int, (task / "children").read_text().split())
    return children


@contextmanager
def bound_to(cores: Sequence[int]) -> Iterator[None]:
    """Bind processes that this thread starts in the block to ``cores``, from their beginning.

    The thread itself is bound meanwhile, and so are the processes that it forks.
    """
    before = os.sched_getaffinity(0)
    if cores:
        try:
            os.sched_setaffinity(0, cores)
        except OSError as error:  # cores that a container does not have
            log.warning("a process is not bound to cores %s: %s", [*cores], error)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
