"""Refer to training code by name on the client, and find the object again in a trainer.

Theory of operation. Code travels as ``module:attr`` or ``/path/script.py:attr``, the folder to put
on ``sys.path``, and the SHA-256 of its source file. A node whose file differs refuses the study. A
trainer outlives studies, so a module that it imported may be out of date (the user edits and runs
again) or in the way (two folders, each with a ``model.py``). A ``Workspace`` therefore keeps the
user's modules apart by folder, and forgets a folder's modules when one of their files has changed.
Nothing here imports torch: the client refers to code without it.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import sys
import time
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from ...profiling.base.errors import BackendError, TrialFailed, UsageError

#: The prefix of the name of a script's module that was imported without its ``__main__`` part.
_SCRIPT = "penstock_script_"

_ADVICE = "define it at the top level of a .py file (a module, or the script that you run)"


def reference(obj: object) -> tuple[str, str, str]:
    """``(target, path, digest)`` of a class or function; see ``scheduler.model.study.Code``.

    Raises ``UsageError`` for code that no other process could import by name; it says what to do.
    """
    if not isinstance(obj, (type, FunctionType)):
        kind = type(obj).__name__
        raise UsageError(f"training code must be a class or a function, not a {kind}: {_ADVICE}")
    name = obj.__qualname__
    if "<lambda>" in name:
        raise UsageError(f"a lambda cannot be imported by trainers: give it a name and {_ADVICE}")
    if "<locals>" in name:
        raise UsageError(f"{name} is defined inside a function, out of trainers' reach: {_ADVICE}")
    module = sys.modules.get(obj.__module__)
    source = getattr(module, "__file__", None)
    if module is None or source is None:
        raise UsageError(f"{name} was typed in a {_typed(name)}")
    try:
        found = _walk(module, name)
    except AttributeError:
        found = None
    if found is not obj:
        raise UsageError(f"{name} names another object than the one given: {_ADVICE}")
    file = Path(source).resolve()
    if file.suffix != ".py":
        raise UsageError(f"{name} comes from {file.name}, which has no Python source: {_ADVICE}")
    digest = _read_digest(name, file)
    importable = obj.__module__
    if importable == "__main__" and module.__spec__ is not None:
        importable = module.__spec__.name  # run as `python -m module`
    if importable == "__main__" or importable.startswith(_SCRIPT):  # run as `python script.py`
        return f"{file}:{name}", str(file.parent), digest
    depth = importable.count(".") + (file.name == "__init__.py")
    return f"{importable}:{name}", str(file.parents[depth]), digest


def _typed(name: str) -> str:
    """Say where code without a file was typed, and what to do there."""
    if "ipykernel" not in sys.modules:
        return f"console, it has no file: {_ADVICE}"
    file = name.lower()
    return (
        "notebook, it has no file that trainers could import: begin its cell, imports and all,"
        f" with `%%writefile {file}_code.py`, and run `from {file}_code import {name}` in the next"
    )


def _read_digest(name: str, file: Path) -> str:
    try:
        return file_digest(file)
    except OSError as error:
        raise UsageError(
            f"{name} was imported from {file}, which cannot be read any more ({error.strerror}):"
            " put it back, trainers import it from there"
        ) from error


def file_digest(file: Path) -> str:
    """Hex SHA-256 of a source file."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _walk(module: ModuleType, name: str) -> object:
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part)
    return found


class Workspace:
    """The user's modules in this process, kept apart by the folder that they came from."""

    def __init__(self) -> None:
        self._folder: str | None = None
        self._aside: dict[str, dict[str, ModuleType]] = {}
        self._imported_at: dict[str, int] = {}
        self._files: dict[str, tuple[int, int]] = {}
        self._objects: dict[str, dict[tuple[str, str], object]] = {}
        self._study = ""

    def load(self, study: str, target: str, path: str, digest: str) -> Any:
        """The object that ``reference`` described. It is imported once a study, checked for edits.

        Raises ``BackendError`` where this node's source is missing or differs, and ``TrialFailed``
        (``code`` or ``exit``) where importing it fails.
        """
        self._enter(path)
        if study != self._study:
            self._study = study
            self._forget_edited(path)
        known = self._objects.setdefault(path, {})
        if (target, digest) not in known:
            known[target, digest] = self._import(target, digest)
            self._note_files(path)
        return known[target, digest]

    def _import(self, target: str, digest: str) -> object:
        where, _, name = target.rpartition(":")
        script = where.endswith(".py")
        file = Path(where) if script else _source_of(where)
        if not file.is_file():
            raise BackendError(f"this node has no {file}, where the study's code should be")
        if file_digest(file) != digest:
            raise BackendError(f"{file} on this node differs from the file of the study")
        try:
            module = import_script(file) if script else importlib.import_module(where)
            return _walk(module, name)
        except AttributeError as error:
            raise TrialFailed("code", f"cannot import {target}: {error}") from error

    def _enter(self, folder: str) -> None:
        """Make the modules of ``folder`` importable, and set those of another folder aside."""
        if folder == self._folder:
            return
        if self._folder is not None:
            aside = self._modules(self._folder)
            for name in aside:
                del sys.modules[name]
            self._aside[self._folder] = aside
            sys.path.remove(self._folder)
        sys.modules.update(self._aside.pop(folder, {}))
        sys.path.insert(0, folder)
        importlib.invalidate_caches()
        self._folder = folder
        self._imported_at.setdefault(folder, time.time_ns())

    def _forget_edited(self, folder: str) -> None:
        """Forget all modules of the folder if a file of one has changed since its import."""
        modules = self._modules(folder)
        if not any(self._edited(_file_of(module), folder) for module in modules.values()):
            return
        for name, module in modules.items():
            del sys.modules[name]
            self._files.pop(_file_of(module), None)
        self._objects.pop(folder, None)
        importlib.invalidate_caches()
        self._imported_at[folder] = time.time_ns()

    def _edited(self, file: str, folder: str) -> bool:
        stamp = _stamp(file)
        if file in self._files:
            return stamp != self._files[file]
        return stamp[0] > self._imported_at[folder]  # imported late, by a running function

    def _note_files(self, folder: str) -> None:
        for module in self._modules(folder).values():
            file = _file_of(module)
            if file not in self._files:
                self._files[file] = _stamp(file)

    def _modules(self, folder: str) -> dict[str, ModuleType]:
        """The user's loaded modules under ``folder``: neither installed ones nor our own."""
        prefix = os.path.join(folder, "")  # noqa: PTH118 - a trailing separator is wanted
        return {
            name: module
            for name, module in list(sys.modules.items())
            if name.partition(".")[0] not in ("penstock", "__main__", "__mp_main__")
            and (file := _file_of(module)).startswith(prefix)
            and not {"site-packages", "dist-packages"}.intersection(Path(file).parts)
        }


def _file_of(module: ModuleType) -> str:
    return getattr(module, "__file__", None) or ""


def _stamp(file: str) -> tuple[int, int]:
    """What changes when a file is edited; zeros if the file is gone."""
    try:
        status = Path(file).stat()
    except OSError:
        return (0, 0)
    return status.st_mtime_ns, status.st_size


def _source_of(module: str) -> Path:
    """The source file of ``module``, found without running it (though its parent packages run)."""
    try:
        spec = importlib.util.find_spec(module)
    except ModuleNotFoundError:
        spec = None
    if spec is None or spec.origin is None:
        raise BackendError(f"this node has no module {module}, where the study's code should be")
    return Path(spec.origin)


def import_script(file: Path) -> ModuleType:
    """Import a script under a name of its own, so that its ``__main__`` part does not run."""
    name = f"{_SCRIPT}{file.stem}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
