"""Start trainers: fork them from a fork server, or start them as new programs.

A new program takes seconds to import torch and all else that it needs. The fork server
(``tasks.trainer.fork_server``) has imported these already, and forks a trainer in hundredths of a
second. It serves one class of trainers: those with equal values of the variables that libraries
read when they are loaded (threads, allocator). While the fork server does not run, does not answer,
or refuses, a trainer is started as a new program.
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
#: The contracts of code that trainers run. The libraries that a contract needs may be missing.
CONTRACTS = ("torch", "objective", "epochs")
#: Variables that keep libraries from starting threads, since a process with threads must not fork:
#: OpenBLAS starts threads when it is loaded, and so does the allocator of pyarrow (of pandas).
WITHOUT_THREADS = {
    "OPENBLAS_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}
#: Seconds for imports, also on a busy machine. After that, trainers are started as new programs.
IMPORT_TIMEOUT = 120.0
#: Seconds that a trainer's start waits while the fork server imports for other trainers.
LOCK_TIMEOUT = 30.0
#: Seconds for a fork.
FORK_TIMEOUT = 10.0
#: The name that stands for the fork server's own start in the place of an import's name.
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
    """Start a trainer by ``command``; other arguments are as for ``ForkServer.start_trainer``."""
    sockets = {names.FD: str(descriptors[0]), names.LISTEN: str(descriptors[1])}
    return launcher.start(
        command,
        variables={**variables, **sockets},
        descriptors=descriptors,
        output=output,
        cores=cores,
    )


class ForkServer:
    """A fork server of one class of trainers. Any thread may call its methods."""

    def __init__(
        self,
        launcher: Launcher,
        variables: Mapping[str, str],
        output: Path,
        *,
        preload: Sequence[str] = (),
        foreseen: bool = False,
    ) -> None:
        """Set up a fork server that has the environment ``variables`` and writes to ``output``.

        Trainers inherit the environment. The fork server imports the contracts and modules in
        ``preload`` ahead of need. ``foreseen``: its first trainers are known to need these, so they
        wait for the imports.
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
        #: Packages that start threads, open a GPU or hang when they are imported.
        self._spoiling: set[str] = set()
        self._over = False

    def start(self) -> None:
        """Start the fork server, if it does not run. Returns before it has imported anything."""
        with self._lock:
            self._start()

    @property
    def pid(self) -> int | None:
        """The process id; None while it does not run."""
        return None if (process := self._process) is None else process.pid

    def tend(self) -> None:
        """Start the fork server again if it has ended meanwhile. Returns at once.

        If it ended soon after its start, it is started again only when a trainer is needed.
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
        """End the fork server, now and for good. Trainers that it has forked go on."""
        self._over = True
        if self._process is not None:
            self._process.end()  # another thread may wait for it, and notices
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
        """Start a trainer that will run trials of ``contract`` first, bound to ``cores``.

        Code of the trials imports the modules ``imports``. A ``command`` that is not empty starts
        the trainer as a new program. ``variables`` are the trainer's environment: those of this
        fork server, and ``SET_AFTER_FORK``. ``descriptors`` are its socket to the worker and its
        listening socket. It writes to the descriptor ``output``. Raises OSError.
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
        except OSError as error:  # no memory, no process, no disk for its log
            own_end.close()
            log.warning("the fork server cannot be started: %s", error)
            return
        channel = Channel(own_end, ended=self._process.fileno())
        self._client = Client(channel, "trainers", heard=self._take)
        self._imported = set()
        self._importing = START

    def _is_ready(self, contract: str, imports: Sequence[str]) -> bool:
        """Return True if the fork server can now fork a trainer for trials of ``contract``.

        It has then imported what ``contract`` needs, and ``imports`` as far as that is possible.
        """
        deadline = time.monotonic() + IMPORT_TIMEOUT
        try:
            client = self._hear()
            if self._importing == "torch" != contract and not self._foreseen:
                return False  # as a new program it is there earlier
            foreseen = self._preload if self._foreseen else ()
            for name in (contract, *imports, *foreseen):
                if name not in self._imported and not self._spoils(name):
                    client.ask({"import": name})
                    self._until_imported(client, deadline, name)
        except Gone as gone:
            self._lose(str(gone))
        return contract in self._imported

    def _hear(self) -> Client:
        """Read all that the fork server has said; return its client. Raises ``Gone``."""
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

        It is started again at once, unless it was lost soon after its start for no known import.
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
        """Wait until the fork server has imported ``name`` or failed to. Raises ``Gone``."""
        try:
            client.until(deadline, imported=name, failed=name)
        except Silent as silent:
            hung = self._importing or name
            if hung not in (*CONTRACTS, START):
                self._spoiling.add(hung.partition(".")[0])
            raise Gone(f"{silent}, while it imports {hung}") from silent

    def _take(self, said: dict[str, Any]) -> None:
        """Handle one message of the fork server. Raises ``Gone``."""
        if "spoilt" in said:
            self._spoiling.add(str(said["spoilt"]).partition(".")[0])
            raise Gone(f"{said['spoilt']}: {said['reason']}")
        self._importing = str(said.get("importing", ""))
        if "imported" in said:
            self._imported.add(said["imported"])
            log.info("the fork server has imported %s", said["imported"])
        if "failed" in said:
            log.info("the fork server cannot import %s: %s", said["failed"], said["reason"])
            if said["failed"] not in CONTRACTS:  # the trainer may, and says so if not
                self._imported.add(said["failed"])
