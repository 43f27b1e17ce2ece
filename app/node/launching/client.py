"""A worker's connection to the launcher process, which starts and ends trainers for the worker."""

from __future__ import annotations

import logging
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from ....base.backoff import Restarts
from ....wire.channel import Channel
from ...host import locks
from ...host.pidfd import Pidfd
from ...host.settings import Settings
from . import process
from .address import connect

log = logging.getLogger(__name__)

#: Seconds after its start within which the launcher process must accept connections.
START_TIMEOUT = 30.0
#: Seconds for the start of a trainer, which may have to wait for imports on a busy machine.
TRAINER_TIMEOUT = 180.0
#: Seconds for the end of a trainer and of all processes that it started. The launcher process may
#: be busy with starting and ending other trainers, each of which may take seconds.
END_TIMEOUT = 60.0
_COMMAND = (sys.executable, "-P", "-m", process.__name__)


def ensure(settings: Settings, variables: Mapping[str, str]) -> None:
    """Start the launcher process unless it runs.

    ``variables`` are the environment variables for which the launcher process prepares trainers.
    """
    locks.spawn_service(
        settings.run,
        process.NAME,
        _COMMAND,
        env={**variables, **settings.environment()},
        log=settings.logs / f"{process.NAME}.log",
        cwd=settings.home,
    )


def stop(settings: Settings, grace: float) -> None:
    """Stop the launcher process if it runs, and kill it if it still runs after ``grace`` seconds.

    Data that its trainers left in memory are removed, even if the process was killed before.
    """
    locks.stop(settings.run, process.NAME, grace=grace)
    process.clear(settings)


def awaiting_imports(settings: Settings) -> Channel:
    """Return a connection that becomes readable when the launcher process has finished its imports.

    The connection also becomes readable if the process ends. The process may be new and not listen
    yet, so the call retries for ``START_TIMEOUT`` seconds. Raises OSError.
    """
    deadline = time.monotonic() + START_TIMEOUT
    while True:
        try:
            connection = connect(settings.run)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
        else:
            connection.send({"await": "imports"})
            return connection


class LaunchedTrainer:
    """A trainer that the launcher process has started. Any thread may call the methods."""

    def __init__(self, pid: int, pidfd: int, connection: Channel) -> None:
        self.pid = pid
        self._pidfd = Pidfd(pidfd)
        self._connection = connection
        self._signalling = threading.Lock()
        self._ending = threading.Lock()
        self._survivors: list[str] | None = None
        #: The exit status, or the negative number of the signal that ended the process. None before
        #: ``end``, or if the status is not known.
        self.status: int | None = None
        #: The reason why the exit status is not known after ``end``. Empty if it is known.
        self.trouble = ""

    def fileno(self) -> int:
        """Return a descriptor (a pidfd) that becomes readable when the process has ended."""
        return self._pidfd.fileno()

    @property
    def alive(self) -> bool:
        return not self.wait(0.0)

    def wait(self, timeout: float) -> bool:
        """Wait up to ``timeout`` seconds. Return True if the process has ended."""
        return self._survivors is not None or self._pidfd.wait(timeout)

    def kill(self) -> None:
        """Kill the trainer without waiting.

        Processes that the trainer started go on until ``end``.
        """
        with self._signalling:
            self._pidfd.send(signal.SIGKILL)

    def end(self) -> list[str]:
        """End the trainer and all processes that it started.

        Returns the processes that the trainer had left running, each as ``name (pid)``. Waits for
        the launcher process, for at most ``END_TIMEOUT`` seconds.
        """
        self.kill()
        with self._ending:
            if self._survivors is None:
                answer = self._ask_for_its_end()
                self.status = answer.get("status")
                self._survivors = answer.get("left", [])
                self._connection.close()
            return self._survivors

    def _ask_for_its_end(self) -> dict[str, Any]:
        """Ask the launcher process to end the trainer, and return the answer.

        If the answer is empty or has no exit status, ``trouble`` says why.
        """
        self._connection.limit(END_TIMEOUT)
        answer: dict[str, Any] = {}
        silent = False
        with suppress(OSError):
            self._connection.send({"end": True})
            silent = not self._connection.hears(END_TIMEOUT)
            if not silent:
                answer, _ = self._connection.receive()
        if silent:  # the launcher process is stopped, or hangs
            self.trouble = f"the launcher process has not answered for {END_TIMEOUT:g} s"
        elif not answer:
            self.trouble = "the launcher process has gone"
        elif answer.get("status") is None:
            self.trouble = "the launcher process does not know how it ended"
        return answer

    def close(self) -> None:
        """End the process and close its descriptors. A second call does nothing."""
        self.end()
        with self._signalling:
            self._pidfd.close()


class TrainerLauncher:
    """A worker's access to its node's launcher process, which it starts if there is none."""

    def __init__(self, settings: Settings, variables: Mapping[str, str]) -> None:
        """Create the object without a connection.

        ``variables`` are the environment variables of the trainers for which a launcher process
        prepares.
        """
        self._settings = settings
        self._variables = dict(variables)
        self._closing = threading.Event()
        self._staying: Channel | None = None

    def stay(self) -> None:
        """Keep a launcher process running until ``leave`` is called. A lost process is replaced."""
        threading.Thread(target=self._keep, name="launcher", daemon=True).start()

    def leave(self) -> None:
        """Close the connection that keeps the launcher process running."""
        self._closing.set()
        if (connection := self._staying) is not None:
            connection.hang_up()

    def _keep(self) -> None:
        restarts = Restarts()
        while not self._closing.is_set():
            restarts = restarts.started(time.monotonic())
            try:
                with self._connect() as self._staying:
                    self._staying.send({"stay": self._variables})
                    if not self._closing.is_set():
                        self._staying.receive()  # returns only when the process has ended
                if not self._closing.is_set():
                    log.warning("the launcher process has ended; another is started")
            except OSError as error:
                log.warning("the launcher process does not answer: %s", error)
            restarts = restarts.ended(now := time.monotonic())
            self._closing.wait(restarts.due - now)

    def start_trainer(
        self,
        contract: str,
        *,
        imports: Sequence[str] = (),
        command: Sequence[str] = (),
        variables: Mapping[str, str],
        cores: Sequence[int],
        descriptors: tuple[int, int],
        output: int,
    ) -> LaunchedTrainer:
        """Start a trainer, bound to ``cores``, whose first trials have the contract ``contract``.

        A contract is a kind of user's code. ``imports`` are the modules that the trials' code
        imports. ``command`` starts the trainer in the environment of the trials' study. If
        ``command`` is empty, the trainer starts in the worker's environment. ``variables`` are the
        trainer's environment variables. ``descriptors`` are the trainer's socket to the worker and
        its listening socket. The trainer's output goes to the descriptor ``output``.

        Raises OSError if the trainer cannot be started.
        """
        request = {
            "contract": contract,
            "imports": list(imports),
            "command": list(command),
            "variables": dict(variables),
            "cores": list(cores),
        }
        for _ in range(2):  # a launcher process that was ending may have taken the first request
            connection = self._connect()
            connection.limit(TRAINER_TIMEOUT)
            answer: dict[str, Any] = {}
            with suppress(ConnectionError):
                connection.send(request, [*descriptors, output])
                if connection.hears(TRAINER_TIMEOUT):
                    answer, received = connection.receive()
                else:
                    self._end_silent(connection)
            if "pid" in answer:
                return LaunchedTrainer(answer["pid"], received[0], connection)
            connection.close()
            if "error" in answer:
                raise OSError(answer["error"])
        raise OSError("the launcher process ends or does not answer")

    def _end_silent(self, connection: Channel) -> None:
        """Kill the hung launcher process at the other end, so that another can start."""
        pid = connection.peer
        run = self._settings.run
        if locks.pid_of(run, process.NAME) == pid:
            log.warning(
                "the launcher process (%d) has not answered for %g s: killed", pid, TRAINER_TIMEOUT
            )
            locks.send_signal(run, process.NAME, signal.SIGKILL)
            locks.wait_gone(run, process.NAME, START_TIMEOUT)

    def _connect(self) -> Channel:
        deadline = time.monotonic() + START_TIMEOUT
        while True:
            try:
                return connect(self._settings.run)
            except OSError:
                if time.monotonic() > deadline:
                    raise
            ensure(self._settings, self._variables)
            time.sleep(0.01)
