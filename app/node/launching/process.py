"""The launcher process, one for each node: it starts and ends the trainers of all workers there.

Theory of operation. Importing torch takes seconds and 200 MB. Forking a process that has imported
torch takes hundredths of a second. So the workers of a node share one fork server
(``app.node.launching.fork_server``). The launcher process owns the fork server and launches the
workers' trainers.

Each connection (``app.node.launching.address``) belongs to one trainer. A worker asks for the
trainer, sends the trainer's descriptors, and gets the trainer's process id and pidfd. The trainer
lives as long as the connection. When the worker asks for the trainer's end, or when the worker
ends, the trainer is ended with all processes that it started.

A connection may also ask that the launcher process stays. The process ends when nobody has been
connected for ``LINGER`` seconds. So it outlives a node agent that was killed, and the workers of
the next agent find everything imported. An agent that ends normally sends SIGTERM to the launcher
process, which then ends as soon as nobody is connected. The clients start the process
(``app.node.launching.client``). If the process is killed, the workers start another at once. The
new process ends the trainers that are left, and the segments of these trainers run again. The
launcher process has the environment of its first trainers.

The requests are JSON objects:

- ``{"contract", "imports", "command", "variables", "cores"}`` comes with three descriptors. The
  answer is ``{"pid"}`` with the pidfd, or ``{"error"}``.
- ``{"end"}`` ends the trainer. The answer is ``{"status", "left"}``.
- ``{"stay": variables}`` has no answer.
- ``{"await": "imports"}`` is answered by ``{}`` once the fork server has imported all modules that
  it imports ahead of need.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import socket
import sysconfig
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ....tasks.process.forking import forbid_tracing
from ....tasks.trainer import variables as names
from ....wire.channel import Channel
from ... import extensions
from ...host import locks
from ...host.launcher import Launcher, Process, end_strays
from ...host.settings import Settings, load
from ...host.stopped import StoppedServices
from .address import listen
from .fork_server import ForkServer, start_program

log = logging.getLogger(__name__)

#: The name of the launcher process's lock and log.
NAME = "launcher"
#: The contracts (kinds of code) for which a fork server imports modules ahead of need if nothing
#: says which contracts will be needed.
AHEAD = "torch,objective"
#: Seconds without any connection after which the launcher process ends.
LINGER = 20.0
#: The largest number of fork servers, one for each class of trainers. Beyond that number, the least
#: recently used fork server is closed.
CLASSES_KEPT = 4
#: Variables that may differ between trainers of the same class: variables of the shell itself, and
#: variables that scikit-learn sets.
_OWN = names.SET_AFTER_FORK | {
    *("PWD", "OLDPWD", "SHLVL", "_"),
    *("KMP_DUPLICATE_LIB_OK", "KMP_INIT_AT_FORK"),
}
#: Seconds between two checks whether anybody is connected.
_INTERVAL = 0.25


class LauncherProcess:
    """The launcher process, which serves each connection in a thread of its own."""

    def __init__(self, settings: Settings, listening: socket.socket) -> None:
        self._settings = settings
        preload = os.environ.pop(names.PRELOAD, "")
        self._foreseen = bool(preload)
        self._preload = (preload or AHEAD).split(",") if settings.preload == "torch" else []
        self._listening = listening
        self._launcher = Launcher()
        #: The watch for services that were stopped (by a signal, for example). Every node has a
        #: launcher process, so this watch covers the agent even on nodes without a scheduler.
        self._stopped = StoppedServices(settings.run)
        self._fork_servers: OrderedDict[tuple[tuple[str, str], ...], ForkServer] = OrderedDict()
        #: The state of the installed libraries. A fork server keeps the versions that it has
        #: imported, so a change closes all fork servers.
        self._libraries = _libraries()
        self._lock = threading.Lock()
        self._connected = 0
        self._stays_until = time.monotonic() + LINGER
        self._lingers = True

    def end_soon(self, signum: int, frame: object) -> None:
        """Have ``serve`` return once nobody is connected. The method is the handler of SIGTERM."""
        self._lingers = False

    def serve(self) -> None:
        """Serve connections until nobody needs the launcher process any more."""
        self._fork_server(os.environ)
        while self._is_needed():
            if select.select([self._listening], [], [], _INTERVAL)[0]:
                self._accept()
            self._launcher.reap()
            with self._lock:
                fork_servers = list(self._fork_servers.values())
            for server in fork_servers:
                server.tend()
            running = [server.pid for server in fork_servers]
            self._stopped.look(("the fork server", pid) for pid in running if pid is not None)
        self._listening.close()
        for server in self._fork_servers.values():
            server.close()

    def _accept(self) -> None:
        try:
            connection, _ = self._listening.accept()
        except OSError as error:  # for example if no descriptor is left
            log.warning("a connection cannot be accepted: %s", error)
            time.sleep(_INTERVAL)
            return
        with self._lock:
            self._connected += 1
        threading.Thread(target=self._attend, args=(Channel(connection),), daemon=True).start()

    def _is_needed(self) -> bool:
        with self._lock:
            lingers = self._lingers and time.monotonic() < self._stays_until
            return self._connected > 0 or lingers

    def _attend(self, connection: Channel) -> None:
        """Serve the request of one connection until the connection is closed."""
        try:
            with connection:
                request, descriptors = connection.receive()
                try:
                    if "stay" in request:
                        self._fork_server(request["stay"])
                        connection.receive()
                    elif "await" in request:
                        self._fork_server(os.environ).import_ahead()
                        connection.send({})
                    elif request:
                        self._launch(connection, request, descriptors)
                finally:
                    for fd in descriptors:
                        os.close(fd)
        except Exception:
            log.exception("a connection was given up")
        finally:
            with self._lock:
                self._connected -= 1
                self._stays_until = time.monotonic() + LINGER

    def _launch(
        self, connection: Channel, request: Mapping[str, Any], descriptors: list[int]
    ) -> None:
        try:
            process = self._start(request, descriptors)
        except OSError as error:
            connection.send({"error": str(error)})
            return
        try:
            while descriptors:  # only the trainer itself may hold its sockets open
                os.close(descriptors.pop())
            connection.send({"pid": process.pid}, [process.fileno()])
            request_to_end = connection.receive()[0]
            survivors = process.end()
            if request_to_end:
                connection.send({"status": process.status, "left": survivors})
        finally:
            process.close()

    def _start(self, request: Mapping[str, Any], descriptors: Sequence[int]) -> Process:
        pipe, listening, output = descriptors
        variables = request["variables"]
        if request["command"]:  # fork servers run only in the worker's own environment
            return start_program(
                self._launcher,
                request["command"],
                variables=variables,
                cores=request["cores"],
                descriptors=(pipe, listening),
                output=output,
            )
        return self._fork_server(variables).start_trainer(
            request["contract"],
            imports=request["imports"],
            variables=variables,
            cores=request["cores"],
            descriptors=(pipe, listening),
            output=output,
        )

    def _fork_server(self, variables: Mapping[str, str]) -> ForkServer:
        """Return the fork server of trainers with the environment ``variables``.

        If there is none, one is started.
        """
        shared = {k: v for k, v in variables.items() if k not in _OWN}
        key = tuple(sorted(shared.items()))
        with self._lock:
            if self._libraries != (current := _libraries()):
                self._libraries = current
                while self._fork_servers:
                    self._fork_servers.popitem()[1].close()
            if key not in self._fork_servers:
                self._fork_servers[key] = server = ForkServer(
                    self._launcher,
                    shared,
                    self._settings.logs / "fork-server.log",
                    preload=self._preload,
                    foreseen=self._foreseen,
                )
                server.start()
            self._fork_servers.move_to_end(key)
            if len(self._fork_servers) > CLASSES_KEPT:
                self._fork_servers.popitem(last=False)[1].close()
            return self._fork_servers[key]


def _libraries() -> tuple[int, ...]:
    """Return the modification times (ns) of the library folders.

    The times change if a library is installed or removed.
    """
    folders = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    return tuple(Path(each).stat().st_mtime_ns for each in sorted(folders) if Path(each).is_dir())


def clear(settings: Settings) -> None:
    """Remove the data that ended trainers left in this node's memory.

    No trainer of the node may be running.
    """
    for each in extensions.of_ends("node", "clear"):
        each(settings.activations)


def main() -> None:
    """Serve the workers of this state folder until they no longer need the launcher process."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    settings = load()
    forbid_tracing()
    with locks.hold(settings.run, NAME):
        end_strays(str(settings.home))
        clear(settings)
        launcher = LauncherProcess(settings, listen(settings.run))
        # A program that drains the node may signal all processes (``tasks.process.termination``).
        signal.signal(signal.SIGTERM, launcher.end_soon)
        launcher.serve()
        clear(settings)


if __name__ == "__main__":
    main()
