"""Start trainers: by a fork from a fork server, or as new programs.

A new program takes seconds to import torch and all other modules that it needs. The fork server
(``tasks.trainer.fork_server``) has imported these already, and forks a trainer in hundredths of a
second. A fork server serves one class of trainers: trainers with equal values of the variables that
libraries read when they are loaded (threads, allocator). While the fork server does not run, does
not answer, or refuses, trainers are started as new programs.
"""

from __future__ import annotations

import logging
import math
import socket
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ....base.backoff import HEALTHY_AFTER
from ....tasks.process.fork_server import Client, Gone, Refused, Silent
from ....tasks.process.lifeline import MARK_VARIABLE
from ....tasks.trainer import variables as names
from ....wire.channel import Channel
from ... import extensions
from ...host.launcher import Launcher, Process
from ...host.logs import open_log
from .launch import ARGUMENTS

log = logging.getLogger(__name__)

#: The command line of a trainer in the environment of its worker.
TRAINER = (sys.executable, *ARGUMENTS)
SERVER = (sys.executable, "-P", "-m", "penstock.tasks.trainer.fork_server")
#: The contracts (kinds of code) that trainers run. The libraries that a contract needs may be
#: missing.
CONTRACTS = ("torch", "objective", "epochs")
#: Variables that keep libraries from starting threads, because a process with threads must not
#: fork. OpenBLAS starts threads when it is loaded, and so does the allocator of pyarrow, which
#: pandas uses.
WITHOUT_THREADS = {
    "OPENBLAS_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}
#: Seconds for imports on a busy machine. After that time, trainers are started as new programs.
IMPORT_TIMEOUT = 120.0
#: Seconds that the start of a trainer waits while the fork server imports for other trainers.
LOCK_TIMEOUT = 30.0
#: Seconds for a fork.
FORK_TIMEOUT = 10.0
#: The text that stands for the fork server's own start where an import's name is expected.
START = "its start"


def start_program(
    launcher: Launcher,
    command: Sequence[str],
    *,
    variables: Mapping[str, str],
    cores: Sequence[int],
    descriptors: tuple[int, int],
    output: int,
) -> Process:
    """Start a trainer with ``command`` as a new program.

    The other arguments are those of ``ForkServer.start_trainer``. Raises OSError.
    """
    sockets = {names.FD: str(descriptors[0]), names.LISTEN: str(descriptors[1])}
    return launcher.start(
        command,
        variables={**variables, **sockets},
        descriptors=descriptors,
        output=output,
        cores=cores,
    )


class ForkServer:
    """A fork server of one class of trainers. Any thread may call the methods."""

    def __init__(
        self,
        launcher: Launcher,
        variables: Mapping[str, str],
        output: Path,
        *,
        preload: Sequence[str] = (),
        foreseen: bool = False,
    ) -> None:
        """Create a fork server that does not run yet.

        The fork server has the environment ``variables``, which trainers inherit, and writes its
        output to the file ``output``. The fork server imports the libraries of the contracts in
        ``preload``, and the modules in ``preload``, ahead of need. ``foreseen`` is True if the
        first trainers are known to need all of ``preload``. These trainers then wait for the
        imports.
        """
        self._launcher = launcher
        self._variables = variables
        self._output = output
        self._preload = preload
        self._foreseen = foreseen
        self._lock = threading.Lock()
        self._process: Process | None = None
        self._client: Client | None = None
        self._started = math.inf
        self._imported: set[str] = set()
        self._importing = ""
        #: The packages that start threads, open a GPU or hang when they are imported.
        self._spoiling: set[str] = set()
        self._over = False

    def start(self) -> None:
        """Start the fork server unless it runs. The call returns before anything is imported."""
        with self._lock:
            self._start()

    @property
    def pid(self) -> int | None:
        """The id of the fork server's process. None while it does not run."""
        return None if (process := self._process) is None else process.pid

    def tend(self) -> None:
        """Start the fork server again if it has ended. The call returns at once.

        If the fork server ended soon after its start, it is started again only when a trainer is
        needed.
        """
        if self._lock.acquire(blocking=False):
            try:
                if self._process is not None:
                    self._hear()
            except Gone as gone:
                self._lose(str(gone))
            finally:
                self._lock.release()

    def import_ahead(self) -> None:
        """Wait until the fork server has imported ``preload``, as far as that is possible."""
        with self._lock:
            if self._preload:
                self._is_ready(self._preload[0], self._preload)

    def close(self) -> None:
        """End the fork server for good. The trainers that it has forked go on."""
        self._over = True
        if self._process is not None:
            self._process.end()  # a thread that waits for the fork server notices its end
        with self._lock:
            self._lose("it is closed")

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
    ) -> Process:
        """Start a trainer, bound to ``cores``, whose first trials have the contract ``contract``.

        A contract is a kind of user's code. ``imports`` are the modules that the trials' code
        imports. If ``command`` is not empty, it starts the trainer as a new program. ``variables``
        are the trainer's environment variables: those of this fork server and those in
        ``SET_AFTER_FORK``. ``descriptors`` are the trainer's socket to the worker and its listening
        socket. The trainer's output goes to the descriptor ``output``.

        Raises OSError if the trainer cannot be started.
        """
        process = None
        if not command and self._lock.acquire(timeout=LOCK_TIMEOUT):
            try:
                if self._is_ready(contract, imports):
                    process = self._fork(variables, cores, descriptors, output)
            finally:
                self._lock.release()
        if process is None:
            process = start_program(
                self._launcher,
                command or TRAINER,
                variables=variables,
                cores=cores,
                descriptors=descriptors,
                output=output,
            )
        return process

    # -- with the lock ---------------------------------------------------------------------------

    def _start(self) -> None:
        self._started = time.monotonic()
        own_end, child_end = socket.socketpair()
        try:
            with child_end, open_log(self._output) as file:
                extra = {names.FORK_SERVER_FD: str(child_end.fileno())}
                extra[names.PRELOAD] = ",".join(n for n in self._preload if not self._spoils(n))
                extra[names.EXTENSIONS] = ",".join(extensions.names("trainer"))
                extra |= WITHOUT_THREADS
                self._process = self._launcher.start(
                    SERVER,
                    variables={**self._variables, **extra},
                    descriptors=(child_end.fileno(),),
                    output=file.fileno(),
                )
        except OSError as error:  # for example if memory or the disk for its log is full
            own_end.close()
            log.warning("the fork server cannot be started: %s", error)
            return
        channel = Channel(own_end, ended=self._process.fileno())
        self._client = Client(channel, "trainers", heard=self._take)
        self._imported = set()
        self._importing = START

    def _is_ready(self, contract: str, imports: Sequence[str]) -> bool:
        """Return True if the fork server can now fork a trainer for trials of ``contract``.

        The call waits until the fork server has imported the libraries of ``contract`` and, as far
        as that is possible, the modules ``imports``.
        """
        deadline = time.monotonic() + IMPORT_TIMEOUT
        try:
            client = self._hear()
            if self._importing == "torch" != contract and not self._foreseen:
                return False  # a new program starts sooner than torch is imported
            foreseen = self._preload if self._foreseen else ()
            for name in (contract, *imports, *foreseen):
                if name not in self._imported and not self._spoils(name):
                    client.ask({"import": name})
                    self._until_imported(client, deadline, name)
        except Gone as gone:
            self._lose(str(gone))
        return contract in self._imported

    def _hear(self) -> Client:
        """Handle all messages that the fork server has sent, and return the connection to it.

        Raises Gone if the fork server does not run.
        """
        if self._client is None:
            raise Gone("it does not run")
        while self._client.next(0.0):
            pass
        return self._client

    def _fork(
        self,
        variables: Mapping[str, str],
        cores: Sequence[int],
        descriptors: tuple[int, int],
        output: int,
    ) -> Process | None:
        own_variables = {
            name: variables[name] for name in names.SET_AFTER_FORK if name in variables
        }

        def fork(mark: str) -> int:
            with_mark = own_variables | {MARK_VARIABLE: mark}
            return self._hear().fork(with_mark, cores, [*descriptors, output], FORK_TIMEOUT)

        try:
            return self._launcher.adopt(fork)
        except Refused:
            pass
        except Gone as gone:
            self._lose(str(gone))
        return None

    def _lose(self, why: str) -> None:
        """Give up the fork server, which has ended or must be ended.

        The fork server is started again at once if it ran for a while, or if a known import made it
        fail. Otherwise it would probably fail again.
        """
        if self._process is not None:
            if not self._over:
                log.warning("the fork server is lost: %s", why)
            self._process.close()
            self._process = None
        if self._client is not None:
            self._client.close()
            self._client = None
        late = time.monotonic() - self._started > HEALTHY_AFTER
        if (late or self._spoils(self._importing)) and not self._over:
            self._start()

    def _spoils(self, name: str) -> bool:
        return name.partition(".")[0] in self._spoiling

    def _until_imported(self, client: Client, deadline: float, name: str) -> None:
        """Wait until the fork server has imported ``name`` or has failed to import it.

        Raises Gone if that takes longer than ``deadline`` or the fork server has ended.
        """
        try:
            client.until(deadline, imported=name, failed=name)
        except Silent as silent:
            hung = self._importing or name
            if hung not in (*CONTRACTS, START):
                self._spoiling.add(hung.partition(".")[0])
            raise Gone(f"{silent}, while it imports {hung}") from silent

    def _take(self, said: dict[str, Any]) -> None:
        """Handle one message of the fork server.

        Raises Gone if the fork server can no longer fork.
        """
        if "spoilt" in said:
            self._spoiling.add(str(said["spoilt"]).partition(".")[0])
            raise Gone(f"{said['spoilt']}: {said['reason']}")
        self._importing = str(said.get("importing", ""))
        if "imported" in said:
            self._imported.add(said["imported"])
            log.info("the fork server has imported %s", said["imported"])
        if "failed" in said:
            log.info("the fork server cannot import %s: %s", said["failed"], said["reason"])
            if said["failed"] not in CONTRACTS:  # the trainer tries again and reports an error
                self._imported.add(said["failed"])
