"""A worker's side of the launcher process: trainers that it starts and ends for this worker."""

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

#: Seconds within which the launcher process must answer at its socket after its start.
START_TIMEOUT = 30.0
#: Seconds for a trainer's start, which may have to wait for imports on a busy machine.
TRAINER_TIMEOUT = 180.0
#: Seconds for ending a trainer and all processes that it started. The launcher process may be busy
#: with ending and starting other trainers, each of which may take seconds.
END_TIMEOUT = 60.0
_COMMAND = (sys.executable, "-P", "-m", process.__name__)


def ensure(settings: Settings, variables: Mapping[str, str]) -> None:
    """Start the launcher process, if it does not run. Its trainers will have ``variables``."""
    locks.spawn_service(
        settings.run,
        process.NAME,
        _COMMAND,
        env={**variables, **settings.environment()},
        log=settings.logs / f"{process.NAME}.log",
        cwd=settings.home,
    )


def stop(settings: Settings, grace: float) -> None:
    """Stop the launcher process, if it runs; kill it after ``grace`` seconds.

    Also remove what its trainers have left in memory, even if it was killed before.
    """
    locks.stop(settings.run, process.NAME, grace=grace)
    process.clear(settings)


def awaiting_imports(settings: Settings) -> Channel:
    """Return a connection that is readable once the launcher process has imported all or ended.

    The process was just started, and may not listen yet: connecting is retried for
    ``START_TIMEOUT`` seconds. Raises OSError.
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
    """A trainer that the launcher process has started. Any thread may call its methods."""

    def __init__(self, pid: int, pidfd: int, connection: Channel) -> None:
        self.pid = pid
        self._pidfd = Pidfd(pidfd)
        self._connection = connection
        self._signalling = threading.Lock()
        self._ending = threading.Lock()
        self._survivors: list[str] | None = None
        #: The exit status, or minus the signal's number; None before ``end``, or if it is unknown.
        self.status: int | None = None
        #: The reason why the exit status is unknown after ``end``; empty if it is known.
        self.trouble = ""

    def fileno(self) -> int:
        """Return a descriptor that becomes readable when the process has ended (a pidfd)."""
        return self._pidfd.fileno()

    @property
    def alive(self) -> bool:
        return not self.wait(0.0)

    def wait(self, timeout: float) -> bool:
        """Wait up to ``timeout`` seconds; return True if the process has ended."""
        return self._survivors is not None or self._pidfd.wait(timeout)

    def kill(self) -> None:
        """Kill the trainer, without waiting. ``end`` finds the processes that it started."""
        with self._signalling:
            self._pidfd.send(signal.SIGKILL)

    def end(self) -> list[str]:
        """End the trainer; return the processes that it had left running, as ``name (pid)``.

        The launcher process ends these, too. Waits for it, at most ``END_TIMEOUT`` seconds.
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
        """Return the launcher process's answer. If empty, ``trouble`` says why there is none."""
        self._connection.limit(END_TIMEOUT)
        answer: dict[str, Any] = {}
        silent = False
        with suppress(OSError):
            self._connection.send({"end": True})
            silent = not self._connection.hears(END_TIMEOUT)
            if not silent:
                answer, _ = self._connection.receive()
        if silent:  # it is stopped, or hangs
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
    """Starts trainers through this node's launcher process, which it starts if that is missing."""

    def __init__(self, settings: Settings, variables: Mapping[str, str]) -> None:
        """``variables``: the environment of trainers for which the launcher process prepares."""
        self._settings = settings
        self._variables = dict(variables)
        self._closing = threading.Event()
        self._staying: Channel | None = None

    def stay(self) -> None:
        """Keep a launcher process running until ``leave``: if it is lost, start another."""
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
                        self._staying.receive()  # nothing comes, until it has ended
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
        """Start a trainer that will run trials of ``contract`` first, bound to ``cores``.

        Code of the trials imports the modules ``imports``. ``command`` starts the trainer in the
        environment of the trials' study; an empty one starts it in the worker's environment.
        ``variables`` are the trainer's variables, ``descriptors`` its socket to the worker and its
        listening socket. It writes to the descriptor ``output``. Raises OSError.
        """
        request = {
            "contract": contract,
            "imports": list(imports),
            "command": list(command),
            "variables": dict(variables),
            "cores": list(cores),
        }
        for _ in range(2):  # one that was just ending may have taken the first connection
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
        """End the hung launcher process at the other end, so that another can start."""
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
