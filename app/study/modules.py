"""Runs a module as ``python -m`` does, for ``penstock run -m`` and ``penstock submit -m``."""

from __future__ import annotations

import importlib.util
import runpy
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from ...profiling.base.errors import UsageError
from .optuna_scripts import on_devices
from .script import say, users_code


def run_module(name: Path, arguments: Sequence[str]) -> None:
    """Run the module ``name`` as ``python -m name arguments...`` would. Errors as ``run_script``.

    The working directory is on ``sys.path``, and the module has its package, so its relative
    imports are found.
    """
    with _python_path():
        specs = list(_specs(str(name)))
        file = _file_of(str(name), specs)
        if file is None:
            raise UsageError(_missing(str(name), specs))
        folders = specs[0].submodule_search_locations
        argv, sys.argv = sys.argv, [str(file), *arguments]
        try:
            with users_code(str(name), folders[0] if folders else str(file)), on_devices(say):
                runpy.run_module(str(name), run_name="__main__", alter_sys=True)
        finally:
            sys.argv = argv


def source_of(name: Path) -> Path | None:
    """Return the file that ``run_module`` runs, without importing anything; None if it has none."""
    with _python_path():
        return _file_of(str(name), list(_specs(str(name))))


@contextmanager
def _python_path() -> Iterator[None]:
    """Put the working directory first on ``sys.path``, unless Python's path is safe (-P)."""
    path = sys.path
    if not sys.flags.safe_path:
        sys.path = [str(Path.cwd()), *path[1:]]
    try:
        yield
    finally:
        sys.path = path


def _specs(name: str) -> Iterator[ModuleSpec]:
    """Yield the specs of ``name``'s packages and of what is run, as far as they are found.

    A package is run by its module ``__main__``.
    """
    top, *rest = name.split(".")
    spec = importlib.util.find_spec(top) if top else None  # a top-level name imports nothing
    full = top
    while spec is not None:
        yield spec
        if not rest and spec.submodule_search_locations is not None:
            rest = ["__main__"]
        if not rest or spec.submodule_search_locations is None:
            break
        full = f"{full}.{rest.pop(0)}"
        spec = PathFinder.find_spec(full, list(spec.submodule_search_locations))


def _file_of(name: str, specs: Sequence[ModuleSpec]) -> Path | None:
    """Return the file that is run for ``name``; None if the last of ``specs`` is not its."""
    if not specs or specs[-1].name not in (name, f"{name}.__main__"):
        return None
    run = specs[-1]
    is_package = run.submodule_search_locations is not None
    return None if is_package or not run.has_location else Path(str(run.origin))


def _missing(name: str, specs: Sequence[ModuleSpec]) -> str:
    """Say why ``python -m name`` runs nothing, and what can be done."""
    if name.endswith((".py", ".ipynb")) or "/" in name:
        return f"{name} is a file and not a module: `penstock run {name}`"
    if specs and specs[-1].name == name:
        return f"{name} is a package without a module __main__: name one of its modules"
    where = f" in {specs[-1].name}" if specs else ""
    return (
        f"there is no module {name}{where}: `-m` finds modules from the working directory and"
        " installed ones, as `python -m` does"
    )
