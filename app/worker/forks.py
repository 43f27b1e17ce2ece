"""How the node agent forks its workers, from a process that has imported Celery.

Theory of operation. A worker that is started as a new program imports Celery, Redis's client and
our own modules: half a second of a core, and some 50 MB that it shares with nobody. So the agent,
as long as it has one thread, forks a process that imports them once, and has it fork each worker.
Such a worker differs in nothing from a new program: a session of its own, its own cores from its
first instruction on, the variables, folder, lock, standard input and log that it is given, and
under its own arguments in ``/proc``.

That process serves one socket, whose other end only the agent holds, and ends with it; its workers
end by themselves then. ``{"arguments", "variables", "cores", "folder"}`` comes with three
descriptors (lock, standard input, log). It is answered by ``{"pid"}``, by ``{"error"}``, or by
``{"refused": reason}``, where a new program may do. ``{"ended": pid}``, asked when that worker has
ended, is answered by ``{"status"}``.

Where the agent has more than one thread, or that process has (something that Celery imports has
started it), or is lost, workers are started as new programs.
"""

from __future__ import annotations

import atexit
import gc
import logging
import os
import select
import signal
import socket
import sys
import traceback
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from ...tasks.process.forking import show, unsafe
from ..host.locks import FD_VARIABLE
from ..launching.packets import receive, send

log = logging.getLogger(__name__)

#: Seconds for a fork, which waits for the imports the first time; on a busy machine, too.
FORK_TIMEOUT = 60.0
#: Seconds for the status of a worker that has ended.
STATUS_TIMEOUT = 5.0
#: How the process shows itself.
NAME = "penstock-workers"


class ForkedWorker:
    """A worker that was forked, with the methods of a ``Popen`` that the agent needs."""

    def __init__(self, pid: int, forks: WorkerForks) -> None:
        self.pid = pid
        #: The exit status, or minus the signal's number, once ``poll`` has found the end.
        self.returncode: int | None = None
        self._forks = forks
        self._pidfd = os.pidfd_open(pid)

    def poll(self) -> int | None:
        """The exit status if the worker has ended; 255 if nobody knows it any more."""
        ended = self.returncode is None and select.select([self._pidfd], [], [], 0.0)[0]
        return self.wait() if ended else self.returncode

    def wait(self) -> int:
        """Wait for its end; returns the exit status."""
        if self.returncode is None:
            select.select([self._pidfd], [], [])
            self.returncode = self._forks.status_of(self.pid)
            os.close(self._pidfd)
        return self.returncode

    def terminate(self) -> None:
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        self._send(signal.SIGKILL)

    def _send(self, signum: signal.Signals) -> None:
        if self.returncode is None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signum)


class WorkerForks:
    """The agent's side of the process that forks its workers."""

    def __init__(self, connection: socket.socket, pid: int) -> None:
        self._connection = connection
        self._pid = pid
        self._why = ""

    @classmethod
    def begin(cls) -> WorkerForks | None:
        """Fork that process. None where this one may not be forked."""
        if reason := unsafe():
            log.info("workers are started as new programs: %s", reason)
            return None
        ours, theirs = socket.socketpair()
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:  # as of an agent that was started with them closed
                stream.flush()
        pid = os.fork()
        if pid == 0:
            _serve_and_exit(theirs)
        theirs.close()
        return cls(ours, pid)

    def start(
        self,
        arguments: Sequence[str],
        *,
        variables: Mapping[str, str],
        cores: Sequence[int],
        folder: Path,
        descriptors: tuple[int, int, int],
    ) -> ForkedWorker | None:
        """Fork a worker, bound to ``cores``; None where it must be started as a new program.

        ``arguments`` would start it as one. ``descriptors`` are its lock, its standard input and
        its log. Raises OSError where no process can be started, or none on these cores.
        """
        request = {
            "arguments": list(arguments),
            "variables": dict(variables),
            "cores": list(cores),
            "folder": str(folder),
        }
        answer = self._ask(request, descriptors, FORK_TIMEOUT)
        if "error" in answer:
            raise OSError(answer["error"])
        if "pid" not in answer:
            why = answer.get("refused", "what forks them is lost")
            if why != self._why:
                log.warning("workers are started as new programs: %s", why)
            self._why = why
            return None
        return ForkedWorker(answer["pid"], self)

    def status_of(self, pid: int) -> int:
        """The exit status of a worker that has ended."""
        return int(self._ask({"ended": pid}, (), STATUS_TIMEOUT).get("status", 255))

    def processes(self) -> list[tuple[str, int]]:
        """Name and id of the process, as long as it is used."""
        return [("what forks workers", self._pid)] if self._pid else []

    def close(self) -> None:
        """End the process; its workers stay."""
        self._connection.close()
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
            self._pid = 0

    def _ask(
        self, request: Mapping[str, Any], descriptors: Sequence[int], timeout: float
    ) -> dict[str, Any]:
        """Its answer; empty if it has gone or is silent, and from then on."""
        answer: dict[str, Any] = {}
        with suppress(OSError):
            self._connection.settimeout(timeout)
            send(self._connection, request, descriptors)
            answer, _ = receive(self._connection)
        if not answer:
            self.close()
        return answer


def _serve_and_exit(connection: socket.socket) -> NoReturn:
    """Be the process that forks workers, until the agent ends."""
    status = 1
    try:
        # Ctrl-C in the agent's terminal is not for this process, nor is what drains a whole group.
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        _close_all_but(connection.fileno())
        show([NAME], os.environ)
        if not sys.flags.safe_path:
            del sys.path[0]  # a file named celery.py there is not Celery
        warnings.resetwarnings()
        warnings.simplefilter("default")
        from .celery import load

        load()
        gc.collect()
        gc.freeze()  # the pages of what is imported stay shared with the workers
        _serve(connection)
        status = 0
    except BaseException:
        traceback.print_exc()
    os._exit(status)


def _close_all_but(kept: int) -> None:
    """Close what the agent holds: its lock ends with it alone, and so does its workers' pipe."""
    os.closerange(3, kept)
    os.closerange(kept + 1, os.sysconf("SC_OPEN_MAX"))


def _serve(connection: socket.socket) -> None:
    while True:
        request, descriptors = receive(connection)
        if "ended" in request:
            answer = {"status": _status(request["ended"])}
        elif request:
            answer = _fork(connection, request, descriptors)
        else:
            return
        for fd in descriptors:
            os.close(fd)
        with suppress(OSError):  # the agent has gone, as is noticed next
            send(connection, answer)


def _status(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _fork(
    connection: socket.socket, request: Mapping[str, Any], descriptors: Sequence[int]
) -> dict[str, Any]:
    if reason := unsafe():
        return {"refused": reason}
    everywhere = os.sched_getaffinity(0)
    pid = -1
    try:
        os.sched_setaffinity(0, request["cores"])  # before its first instruction, not after
        pid = os.fork()
    except OSError as error:
        return {"error": str(error)}
    finally:
        if pid:
            os.sched_setaffinity(0, everywhere)
    if pid == 0:
        connection.close()
        _become_worker(request, descriptors)
    return {"pid": pid}


def _become_worker(request: Mapping[str, Any], descriptors: Sequence[int]) -> NoReturn:
    status = 1
    try:
        os.setsid()
        lock, stdin, output = descriptors
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
        _set_streams(stdin, output)
        os.chdir(request["folder"])
        os.environ.clear()
        os.environ.update(request["variables"], **{FD_VARIABLE: str(lock)})
        show(request["arguments"], os.environ)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        for handler in logging.root.handlers[:]:  # the agent's
            logging.root.removeHandler(handler)
        from .celery import run

        status = run(request["arguments"])
        atexit._run_exitfuncs()
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _set_streams(stdin: int, output: int) -> None:
    """Read and write there, as a program does that was started so; the agent may have none."""
    for target, fd in enumerate((stdin, output, output)):
        os.dup2(fd, target)
    os.close(stdin)
    os.close(output)
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", 1, errors="backslashreplace", closefd=False)
