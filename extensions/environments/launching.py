"""Returns the command and the variables that start a trainer in the environment of its study.

Theory of operation. A trainer communicates over a socket that it inherits, and environment
variables tell the trainer which descriptor that is. So any program that passes descriptors and
variables on can start a trainer. The trainer imports the Penstock of its own environment, which
must have the worker's version: the trainer reports its version when it is ready
(``app.node.sessions.endings``). Such a trainer is never forked from the fork server, because the
fork server has imported the worker's libraries.

- ``venv:`` runs the environment's ``bin/python``, without the user's ``PYTHONPATH``.
- ``rootfs:`` runs ``bwrap``, which mounts the folders of a system (``SYSTEM``) from the root,
  read-only, and all other folders from the node: home folders, ``/tmp``, data, devices. So code,
  working directory and store keep their usual paths. ``bwrap`` ends with the launcher process, and
  the trainer ends with ``bwrap``.
- ``command:`` runs the user's words, followed by the trainer's command.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ...app.node.launching.launch import ARGUMENTS, CannotStart, Launch
from ...tasks.trainer import variables as names
from .forms import KINDS, Environment

#: The name of the interpreter that runs in a root, or after the words of a command.
PYTHON = "python3"
#: The folders of an operating system. In a root they replace the same folders of the node.
SYSTEM = frozenset(
    {"bin", "boot", "etc", "lib", "lib32", "lib64", "libx32", "opt", "sbin", "usr", "var"}
)
#: The variable that names the state folder.
_HOME = "PENSTOCK_HOME"
_DEVICES = "/dev"
#: Folders of the node that a root keeps although they are inside a folder of the system.
_KEPT = ("/var/tmp",)  # noqa: S108 - it is passed on, and nothing is written there
#: ``PATH`` inside a root, because the user's own ``PATH`` names folders of the node.
ROOT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#: Variables that point the node's Python to libraries which another Python cannot use.
_PYTHONS_OWN = ("PYTHONPATH", "PYTHONHOME", "PYTHONEXECUTABLE", "VIRTUAL_ENV")
#: Seconds that ``bwrap`` may take to start a program. The limit is long enough for a busy machine.
BWRAP_TIMEOUT = 10.0


def launch(environment: str, variables: Mapping[str, str]) -> Launch:
    """Return the command and the variables that start a trainer in ``environment``.

    ``variables`` are those of the worker. Raises ``CannotStart`` if the environment does not exist
    on this node or its text is invalid.
    """
    try:
        return _launch(environment, variables)
    except ValueError as error:  # from words that are none, or a path that can be none
        raise CannotStart(f"{environment!a}: {error}") from error


def _launch(environment: str, variables: Mapping[str, str]) -> Launch:
    kind, where = Environment.of(environment)
    if kind not in KINDS:
        raise CannotStart(f"{environment!a}: this worker knows {', '.join(KINDS)}")
    environment_variables = {
        name: value for name, value in variables.items() if name not in _PYTHONS_OWN
    }
    environment_variables[names.ENVIRONMENT] = environment
    if kind == "venv":
        return _in_venv(environment, Path(where), environment_variables)
    # Libraries in the user's home folder belong to the node's Python.
    environment_variables["PYTHONNOUSERSITE"] = "1"
    if kind == "rootfs":
        return _in_root(environment, Path(where), environment_variables)
    program, *words = shlex.split(where)
    executable = shutil.which(program, path=environment_variables.get("PATH"))
    if executable is None:
        raise CannotStart(f"{environment}: there is no program {program} on the path of the worker")
    return Launch((executable, *words, PYTHON, *ARGUMENTS), environment_variables, wrapped=True)


def _in_venv(environment: str, folder: Path, environment_variables: dict[str, str]) -> Launch:
    python = folder / "bin" / "python"
    if not folder.is_dir():
        raise CannotStart(f"{environment}: there is no such folder on this node")
    if not os.access(python, os.X_OK):
        raise CannotStart(f"{environment}: it has no bin/python that this node can run")
    environment_variables["VIRTUAL_ENV"] = str(folder)
    environment_variables["PATH"] = (
        f"{python.parent}:{environment_variables.get('PATH', ROOT_PATH)}"
    )
    return Launch((str(python), *ARGUMENTS), environment_variables)


def _in_root(environment: str, root: Path, environment_variables: dict[str, str]) -> Launch:
    bwrap = shutil.which("bwrap", path=environment_variables.get("PATH"))
    if bwrap is None:
        raise CannotStart(f"{environment}: bwrap is not installed on this node")
    if not (root / "usr").is_dir():
        missing = "no usr folder" if root.is_dir() else "no such folder on this node"
        raise CannotStart(f"{environment}: there is {missing}")
    environment_variables["PATH"] = ROOT_PATH
    environment_variables.pop("LD_LIBRARY_PATH", None)
    try:
        arguments = [
            "--die-with-parent",
            *_mounts(root, _folders_of_node(environment_variables.get(_HOME))),
        ]
    except OSError as error:
        raise CannotStart(f"{environment}: it cannot be read: {error}") from error
    return Launch(
        (bwrap, *arguments, "--", PYTHON, *ARGUMENTS), environment_variables, wrapped=True
    )


def _folders_of_node(home: str | None) -> list[Path]:
    """Return the folders of the node that are mounted into a root.

    These are all folders at the top except those of the system, and the state folder ``home``.
    """
    folders = [Path(entry.path) for entry in os.scandir("/") if entry.name not in SYSTEM]
    extra_folders = [
        Path(each) for each in (home, *_KEPT) if each is not None and Path(each).is_dir()
    ]
    below = [each for each in extra_folders if not any(map(each.is_relative_to, folders))]
    return [each for each in folders if each.is_dir()] + below


def _mounts(root: Path, nodes: Sequence[Path]) -> Iterator[str]:
    yield from _laid_out(root, Path("/"), nodes)
    for folder in nodes:
        how = "--dev-bind" if str(folder) == _DEVICES else "--bind"
        yield from (how, str(folder), str(folder))


def _laid_out(root: Path, at: Path, nodes: Sequence[Path]) -> Iterator[str]:
    """Yield ``bwrap`` arguments that mount the folder ``at`` of the root.

    The folders ``nodes``, which are the node's own, are left out.
    """
    for entry in sorted(os.scandir(root / at.relative_to("/")), key=lambda entry: entry.name):
        target = at / entry.name
        if target in nodes or (at == Path("/") and entry.name not in SYSTEM):
            continue
        if entry.is_symlink():
            yield from ("--symlink", os.readlink(entry), str(target))  # noqa: PTH115 - an entry
        elif any(each.is_relative_to(target) for each in nodes):
            yield from _laid_out(root, target, nodes)
        else:
            yield from ("--ro-bind", entry.path, str(target))


def why_no_rootfs() -> str:
    """Return the reason why this node cannot start trainers in a root.

    The result is empty if the node can.
    """
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        return "bwrap is not installed on its node"
    command = [bwrap, "--bind", "/", "/", "--dev-bind", _DEVICES, _DEVICES, "--", "true"]
    try:
        run = subprocess.run(
            command, capture_output=True, text=True, timeout=BWRAP_TIMEOUT, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"bwrap does not work on its node: {error}"
    words = run.stderr.strip().rpartition("\n")[2]
    return f"bwrap does not work on its node: {words}" if run.returncode else ""


def advice(environment: str, needed: str) -> str:
    """Return a command, or words of advice, to add a missing package to an environment.

    ``needed`` is the name of the package.
    """
    kind, where = Environment.of(environment)
    match kind:
        case "venv":
            return f"{where}/bin/python -m pip install {needed}"
        case "rootfs":  # the node's pip would install into the node, and bwrap mounts it read-only
            return f"put {needed} into the root, where its own python3 finds it"
        case _:
            return f"the Python that it starts needs {needed}"
