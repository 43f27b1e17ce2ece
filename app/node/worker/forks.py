"""Fork the node agent's workers from a process that has already imported Celery.

Theory of operation. A worker that is started as a new program imports Celery, the Redis client and
Penstock's own modules. The imports take half a second of a core, and some 50 MB that no other
process shares. So the agent forks a fork server (``tasks.process.fork_server``) while the agent has
only one thread. The fork server imports these modules once and then forks each worker. A forked
worker is a child of the agent and behaves like a new program: it has its own session and cores, it
gets its variables, folder, lock, standard input and log, and ``/proc`` shows its own arguments.

Only the agent holds the other end of the fork server's socket, so the fork server ends with the
agent. Workers then end by themselves. A request to fork has the fields ``arguments``, ``variables``
and ``folder``, and three descriptors (lock, standard input, log).

Workers are started as new programs if the agent has more than one thread, if the fork server has
more than one (started by a module that Celery imports), or if the fork server is lost.
"""

from __future__ import annotations

import atexit
import logging
import os
import signal
import socket
import sys
import traceback
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from ....tasks.process.fork_server import Client, Gone, Refused, Server
from ....tasks.process.forking import adopting, show, unsafe
from ....wire.channel import Channel
from ...host.launcher import Adopted
from ...host.locks import FD_VARIABLE

log = logging.getLogger(__name__)

#: Seconds that a fork may take on a busy machine. The first fork waits for the imports.
FORK_TIMEOUT = 60.0
#: The name under which ``/proc`` shows the fork server.
NAME = "penstock-workers"


class WorkerForks:
    """The agent's connection to the fork server of its workers."""

    def __init__(self, client: Client, pid: int) -> None:
        self._client = client
        self._pid = pid

    @classmethod
    def begin(cls) -> WorkerForks | None:
        """Fork the fork server. Return None if this process may not fork safely."""
        if reason := unsafe():
            log.info("workers are started as new programs: %s", reason)
            return None
        own_end, child_end = socket.socketpair()
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:  # None if the agent was started with closed streams
                stream.flush()
        pid = os.fork()
        if pid == 0:
            _serve_and_exit(child_end)
        child_end.close()
        client = Client(Channel(own_end), "workers")
        client.ask({"import": "celery"})
        return cls(client, pid)

    def start(
        self,
        arguments: Sequence[str],
        *,
        variables: Mapping[str, str],
        cores: Sequence[int],
        folder: Path,
        descriptors: tuple[int, int, int],
    ) -> Adopted | None:
        """Fork a worker that is bound to ``cores``, and return its process.

        Returns None if the worker must be started as a new program. ``arguments`` is the command
        line for that program. ``descriptors`` are the worker's lock, standard input and log.
        """
        if not self._pid:
            return None
        request = {
            "arguments": [*arguments],
            "variables": {**variables},
            "folder": str(folder),
        }
        try:
            with adopting():
                pid = self._client.fork(request, cores, descriptors, FORK_TIMEOUT)
        except Refused:
            return None
        except Gone as gone:
            log.warning("workers are started as new programs: what forks them is lost: %s", gone)
            self.close()
            return None
        return Adopted(pid)

    def processes(self) -> list[tuple[str, int]]:
        """Return a name for messages and the process id of the fork server, while it is in use."""
        return [("what forks workers", self._pid)] if self._pid else []

    def close(self) -> None:
        """End the fork server. The workers that it has forked go on."""
        self._client.close()
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
            self._pid = 0


def _serve_and_exit(end: socket.socket) -> NoReturn:
    """Run as the fork server until the agent ends. ``end`` is the socket to the agent."""
    status = 1
    try:
        os.setsid()
        _close_all_but(end.fileno())
        show([NAME], os.environ)
        if not sys.flags.safe_path:
            del sys.path[0]  # a file named celery.py in that folder must not be imported
        warnings.resetwarnings()
        warnings.simplefilter("default")
        Server(Channel(end), _become_worker, _load).serve()
        status = 0
    except BaseException:
        traceback.print_exc()
    os._exit(status)


def _close_all_but(kept: int) -> None:
    """Close all descriptors inherited from the agent, except for ``kept`` and the standard streams.

    The agent's lock and the pipe to its workers must be closed by the end of the agent alone.
    """
    os.closerange(3, kept)
    os.closerange(kept + 1, os.sysconf("SC_OPEN_MAX"))


def _load(name: str) -> None:
    """Import Celery, or end the process.

    A worker started as a new program then reports the error.
    """
    try:
        from .celery import load

        load()
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def _become_worker(told: Mapping[str, Any], descriptors: Sequence[int]) -> NoReturn:
    status = 1
    try:
        lock, stdin, output = descriptors
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
        _set_streams(stdin, output)
        os.chdir(told["folder"])
        os.environ.clear()
        os.environ.update(told["variables"], **{FD_VARIABLE: str(lock)})
        show(told["arguments"], os.environ)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for handler in logging.root.handlers[:]:  # the handlers are the agent's
            logging.root.removeHandler(handler)
        from .celery import run

        status = run(told["arguments"])
        atexit._run_exitfuncs()
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _set_streams(stdin: int, output: int) -> None:
    """Make ``stdin`` and ``output`` the standard streams. The agent may have none."""
    for target, fd in enumerate((stdin, output, output)):
        os.dup2(fd, target)
    os.close(stdin)
    os.close(output)
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", 1, errors="backslashreplace", closefd=False)
