"""The fork server of trainers: ``python -m penstock.tasks.trainer.fork_server``.

The launcher process starts it (``app.node.launching.fork_server``), and
``tasks.process.fork_server`` describes it. It imports the modules that the contracts need, and the
libraries that users' code imports, if they are installed and not the user's own. An import that
starts a thread spoils the fork server: this is reported, and another fork server is started without
that import. Before a fork no code may start OpenMP's threads, so no tensor is computed here.
OpenBLAS would start threads as soon as it is loaded: so it uses one thread here, and the trainer's
number of threads after the fork.

The descriptor of its socket is in ``PENSTOCK_FORK_SERVER_FD``.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from ...wire.channel import Channel
from ..process.fork_server import Server, Spoilt
from ..process.forking import show, unsafe
from ..process.lifeline import MARK_VARIABLE
from . import __main__ as trainer
from . import hooks, variables

#: Modules that a trial of each contract needs.
MODULES: Mapping[str, Sequence[str]] = {
    "torch": (".segment", "numpy.random"),  # seeding an epoch loads the latter
    "objective": ("..objectives.objective",),
    "epochs": ("..contracts.epoch_function",),
}
_LIBRARIES = frozenset({"site-packages", "dist-packages"})

#: The top-level modules that were imported only for libraries which users' code imports.
_ahead: set[str] = set()


def load(name: str) -> None:
    """Import the modules of the contract ``name``, or the module ``name``. Raises ``Spoilt``."""
    if name in MODULES:
        for module in MODULES[name]:
            import_module(module, __package__)
        if name == "torch":
            from ..system import compiler

            compiler.defer()  # also for objectives, which have no segments
            hooks.load(variables.names_in(os.environ.get(variables.EXTENSIONS, "")))
        return
    if is_installed(name):
        before = {each.partition(".")[0] for each in sys.modules}
        _import_module(name)
        _ahead.update({each.partition(".")[0] for each in sys.modules} - before)
    if reason := unsafe():
        raise Spoilt(reason)


def _import_module(name: str) -> None:
    """Import the module ``name``, or the one before the last dot if it may be an attribute."""
    try:
        import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name or "." not in name:
            raise


def is_installed(name: str) -> bool:
    """Return True if the module ``name`` belongs to a library: users' own code may change."""
    top = name.partition(".")[0]
    spec = find_spec(top)
    folders = Path(spec.origin).parts if spec is not None and spec.origin is not None else ()
    return top in sys.stdlib_module_names or not _LIBRARIES.isdisjoint(folders)


def become(told: Mapping[str, str], descriptors: Sequence[int]) -> None:
    """Become a trainer with the variables ``told``."""
    pipe, listen, output = descriptors
    for target in (1, 2):
        os.dup2(output, target)
    os.close(output)
    # ``/proc`` must not show the token for peers, which programs that user code starts must not
    # know.
    mark = {MARK_VARIABLE: told[MARK_VARIABLE]}
    show([*sys.orig_argv[:-1], __package__], os.environ | mark)
    os.environ.update(told)
    os.environ[variables.FD] = str(pipe)
    os.environ[variables.LISTEN] = str(listen)
    _set_blas_threads(int(told["OPENBLAS_NUM_THREADS"]))
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed()  # Python's own generator reseeds itself; torch's has a fixed seed
    trainer.main(_ahead)


def _set_blas_threads(threads: int) -> None:
    """Give a loaded OpenBLAS the number of threads in the trainer's variables."""
    if threads > 1 and "numpy" in sys.modules:
        from threadpoolctl import ThreadpoolController

        libraries = ThreadpoolController().select(internal_api="openblas")
        for library in libraries.lib_controllers:
            library.set_num_threads(threads)


def main() -> None:
    """Serve the socket that the launcher process passed on."""
    end = socket.socket(fileno=int(os.environ.pop(variables.FORK_SERVER_FD)))
    end.set_inheritable(False)
    if not show(sys.orig_argv, os.environ):
        sys.exit("this kernel cannot show a forked trainer as one (CONFIG_CHECKPOINT_RESTORE)")
    ahead = variables.names_in(os.environ.pop(variables.PRELOAD, ""))
    Server(Channel(end), become, load, ahead).serve()


if __name__ == "__main__":
    main()
