"""The fork server: ``python -m penstock.tasks.trainer.fork_server``, the launcher process's.

Theory of operation. A trainer that is started as a new program spends seconds on imports: torch
alone takes two, and what torch imports at an optimizer's first step as long again. The fork server
does that once, then becomes a trainer whenever it is asked to, by forking:

- *Twice*, and the process between ends at once. So the trainer loses its parent and is adopted by
  the launcher process, the subreaper (``app.host.launcher``): it is that process's child in every
  respect, and outlives the fork server.
- *Only where that is safe*: with one thread, and no GPU opened. Before a fork nothing runs that
  starts OpenMP's threads, so no tensor is computed here. OpenBLAS would start threads as soon as it
  is loaded: it is told one here, and the trainer's number after the fork.
- *Under the trainer's own name and mark.* ``/proc`` shows the arguments and variables with which
  the fork server was started. The trainer writes its own over them, in its own memory.

It imports what the contracts need, and the libraries that users' code imports, as far as they are
installed and not the user's own. What starts a thread spoils it: that is said, and another fork
server is started that does without.

The socket whose number is in ``PENSTOCK_FORK_SERVER_FD`` brings requests, one a packet, a trainer's
descriptors with them. It answers ``{"importing": name}``, then ``{"imported": name}``,
``{"failed": name}`` or ``{"spoilt": name}``, for an import, and ``{"pid": ...}`` or
``{"refused": reason}`` for a fork.
Where it refuses, the trainer is started as a new program. The fork server ends when the other end
of the socket closes.
"""

from __future__ import annotations

import array
import ctypes
import gc
import json
import os
import select
import signal
import socket
import sys
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

from ..process.forking import fork_twice, stat_field, unsafe
from ..process.lifeline import MARK_VARIABLE, ending_with_us
from . import __main__ as trainer
from . import hooks, variables

#: What a trial of each contract needs.
MODULES: Mapping[str, Sequence[str]] = {
    "torch": (".segment",),
    "objective": ("..objectives.objective",),
    "epochs": ("..contracts.epoch_function",),
}
_LIBRARIES = frozenset({"site-packages", "dist-packages"})
_PACKET = 1 << 16
_FDS = 3  # a trainer's pipe, its listening socket, its log
_ARGUMENTS, _ENVIRONMENT = (48, 49), (50, 51)  # begin and end, as in proc(5)


class ForkServerProcess:
    """Answers one request after another."""

    def __init__(
        self, control: socket.socket, preload: Sequence[str], extensions: Sequence[str]
    ) -> None:
        """``preload``: what to import ahead of need. ``extensions`` hook into segments."""
        self._control = control
        self._extensions = extensions
        self._preload = list(preload)
        self._imported: set[str] = set()
        #: The top-level modules that came only with libraries which the code of users imports.
        self._ahead: set[str] = set()

    def serve(self) -> None:
        """Return when the other end of the socket has closed."""
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        self._say(up=True)
        while True:
            if self._preload and not poll.poll(0):
                self._import(self._preload.pop(0))
                continue
            packet, received, _, _ = self._control.recvmsg(_PACKET, socket.CMSG_SPACE(_FDS * 4))
            if not packet:
                return
            fds = array.array("i")
            for _, _, data in received:
                fds.frombytes(data)
            request = json.loads(packet)
            try:
                if "variables" in request:
                    self._fork(request["variables"], request["cores"], list(fds))
                else:
                    self._import(request["import"])
            finally:
                for fd in fds:
                    os.close(fd)

    def _say(self, **fields: Any) -> None:
        self._control.send(json.dumps(fields).encode())

    def _import(self, name: str) -> None:
        """Import what the contract ``name`` needs, or the module ``name``."""
        if name not in self._imported:
            self._say(importing=name)
            try:
                if name in MODULES:
                    for module in MODULES[name]:
                        import_module(module, __package__)
                    if name == "torch":
                        hooks.load(self._extensions)
                elif is_installed(name):
                    before = {each.partition(".")[0] for each in sys.modules}
                    _import_module(name)
                    self._ahead |= {each.partition(".")[0] for each in sys.modules} - before
            except BaseException as error:  # whatever a library raises
                self._say(failed=name, reason=f"{type(error).__name__}: {error}")
                return
            if name not in MODULES and (reason := unsafe()):
                self._say(spoilt=name, reason=reason)
                return
            self._imported.add(name)
            # The pages of what is imported stay shared with the trainers.
            gc.collect()
            gc.freeze()
        self._say(imported=name)

    def _fork(self, told: dict[str, str], cores: Sequence[int], fds: Sequence[int]) -> None:
        try:
            reason = unsafe()
            if not reason:
                pid = fork_twice()
                if pid == 0:
                    self._control.close()
                    _become_trainer(told, cores, fds, self._ahead)
                self._say(pid=pid)
                return
        except OSError as error:
            reason = str(error)
        self._say(refused=reason)


def _import_module(name: str) -> None:
    """Import the module ``name``, or that before its last dot, of which it may be an attribute."""
    try:
        import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name or "." not in name:
            raise


def is_installed(name: str) -> bool:
    """Whether the module ``name`` is a library's. The user's own code changes from run to run."""
    top = name.partition(".")[0]
    spec = find_spec(top)
    folders = Path(spec.origin).parts if spec is not None and spec.origin is not None else ()
    return top in sys.stdlib_module_names or not _LIBRARIES.isdisjoint(folders)


def _become_trainer(
    told: dict[str, str], cores: Sequence[int], fds: Sequence[int], ahead: Collection[str]
) -> NoReturn:
    with ending_with_us():
        os.setsid()
        # Before anything starts threads. A container may not have these cores.
        with suppress(OSError):
            os.sched_setaffinity(0, cores)
        pipe, listen, output = fds
        for target in (1, 2):
            os.dup2(output, target)
        os.close(output)
        _show(told[MARK_VARIABLE])
        os.environ.update(told)
        os.environ[variables.FD] = str(pipe)
        os.environ[variables.LISTEN] = str(listen)
        _set_blas_threads(int(told["OPENBLAS_NUM_THREADS"]))
        if (numpy := sys.modules.get("numpy")) is not None:
            numpy.random.seed()  # Python's own generator reseeds itself; torch's has a fixed seed
        trainer.main(ahead)
    os._exit(0)


def _show(mark: str) -> None:
    """Have ``/proc`` show this process as a trainer with its own mark."""
    name, ours = f"{__package__}\0", f"{__spec__.name}\0" if __spec__ else ""
    _overwrite(_ARGUMENTS, ours.encode(), name.encode())
    before = os.environ[MARK_VARIABLE]
    _overwrite(
        _ENVIRONMENT, f"{MARK_VARIABLE}={before}\0".encode(), f"{MARK_VARIABLE}={mark}\0".encode()
    )


def _overwrite(area: tuple[int, int], old: bytes, new: bytes) -> None:
    """Replace ``old`` by ``new``, which is no longer, where ``/proc`` has it from."""
    start, end = map(stat_field, area)
    at = ctypes.string_at(start, end - start).find(old)
    if at < 0 or len(new) > len(old):
        raise ValueError(f"{old!r} cannot become {new!r}")
    ctypes.memmove(start + at, new.ljust(len(old), b"\0"), len(old))


def _set_blas_threads(threads: int) -> None:
    """Give a loaded OpenBLAS the number that the trainer's variables say."""
    if threads > 1 and "numpy" in sys.modules:
        from threadpoolctl import ThreadpoolController

        libraries = ThreadpoolController().select(internal_api="openblas")
        for library in libraries.lib_controllers:
            library.set_num_threads(threads)


def main() -> None:
    """Serve the socket that the launcher process passed on."""
    # Ctrl-C in the terminal is not for this process, nor is what drains a whole group.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    control = socket.socket(fileno=int(os.environ.pop(variables.FORK_SERVER_FD)))
    control.set_inheritable(False)
    preload = variables.names_in(os.environ.pop(variables.PRELOAD, ""))
    extensions = variables.names_in(os.environ.get(variables.EXTENSIONS, ""))
    ForkServerProcess(control, preload, extensions).serve()


if __name__ == "__main__":
    main()
