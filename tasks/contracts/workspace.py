"""Find the user's code again in a trainer, and keep the modules of several users apart.

Theory of operation. A trainer outlives studies, so a module that it imported may be out of date
(the user edits and runs again) or in the way (two folders, each with a ``model.py``). A
``Workspace`` therefore keeps the user's modules apart by folder, and forgets a folder's modules
when one of their files has changed. ``__main__`` is the script of a study whose code is sent by
value.

Libraries may have been imported ahead for the code of other studies
(``tasks.trainer.fork_server``). If a folder has a module of the same name, the user's code must get
that module, as in a process of its own. So the library that was imported ahead is forgotten.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import time
from collections.abc import Collection
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from types import ModuleType
from typing import Any

from ...base.errors import BackendError, TrialFailed
from . import by_value
from .code import IMPORT_TARGET, Found, file_digest, import_script, walk
from .import_digest import IMPORTS, import_digest
from .import_names import is_in


class Workspace:
    """The user's modules in this process, kept apart by their folders."""

    def __init__(self, ahead: Collection[str] = ()) -> None:
        """Make a workspace; ``ahead`` are the modules that a fork server imported ahead of need."""
        self._ahead = ahead
        self._last = next(reversed(sys.modules))
        self._folder: str | None = None
        self._aside: dict[str, dict[str, ModuleType]] = {}
        self._imported_at: dict[str, int] = {}
        self._files: dict[str, tuple[int, int]] = {}
        self._objects: dict[str, dict[tuple[str, str], object]] = {}
        self._study = ""
        #: For each folder of code, further folders that the code needs on ``sys.path``.
        self._added: dict[str, list[str]] = {}
        self._main = sys.modules["__main__"]
        self._mains: dict[str, ModuleType] = {}

    def load(self, study: str, target: str, path: str, digest: str, store: str = "") -> Any:
        """Return the object that ``refer`` described.

        It is loaded once, and again for another study after an edit. Raises ``BackendError`` if
        this node's source is missing or differs, or ``store`` lacks the code that is sent by value.
        Raises ``TrialFailed`` (``code`` or ``exit``) if loading fails.
        """
        self._enter(path)
        if study != self._study:
            self._study = study
            self._forget_edited(path)
        objects = self._objects.setdefault(path, {})
        if (target, digest) not in objects:
            if by_value.is_by_value(target):
                objects[target, digest] = self._unpickle(target, digest, store)
            else:
                objects[target, digest] = _imported(target, path, digest)
            self._note_files(path)
        sys.modules["__main__"] = self._mains.get(digest, self._main)
        return objects[target, digest]

    def enter_again(self, path: str, digest: str) -> None:
        """Restore the modules as they were when the code with this digest was loaded from ``path``.

        Other code may have been loaded, or run, meanwhile.
        """
        self._enter(path)
        sys.modules["__main__"] = self._mains.get(digest, self._main)

    def _unpickle(self, target: str, digest: str, store: str) -> object:
        content = by_value.read(store, digest)
        folders = [each for each in by_value.folders_of(content) if each not in sys.path]
        sys.path += folders
        self._added.setdefault(self._folder or "", []).extend(folders)
        code = by_value.unpickled(content, target)
        self._mains[digest] = by_value.main_of(code)
        return code

    def _enter(self, folder: str) -> None:
        """Make the modules of ``folder`` importable, and set those of another folder aside."""
        if folder == self._folder:
            return
        if self._folder is not None:
            aside = self._modules(self._folder)
            for name in aside:
                del sys.modules[name]
            self._aside[self._folder] = aside
            for each in (self._folder, *self._added.get(self._folder, ())):
                with suppress(ValueError):  # the user's code may have taken it out
                    sys.path.remove(each)
        self._uncover(folder)
        sys.modules.update(self._aside.pop(folder, {}))
        sys.path.insert(0, folder)
        sys.path += self._added.get(folder, ())
        importlib.invalidate_caches()
        self._folder = folder
        self._imported_at.setdefault(folder, time.time_ns())

    def _uncover(self, folder: str) -> None:
        """Forget modules that were imported ahead if ``folder`` has modules of the same names."""
        names: set[str] = set()
        with suppress(OSError):
            names = {each.partition(".")[0] for each in os.listdir(folder)}  # noqa: PTH208 - cheap
        covering = {name for name in names.intersection(self._ahead) if is_in(Path(folder), name)}
        for name in list(sys.modules) if covering else ():
            if name.partition(".")[0] in covering:
                del sys.modules[name]

    def _forget_edited(self, folder: str) -> None:
        """Forget all modules of the folder if any module's file has changed since its import."""
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
        """Return the user's loaded modules in ``folder``, without installed ones and Penstock's."""
        prefix = os.path.join(folder, "")  # noqa: PTH118 - a trailing separator is wanted
        return {
            name: module
            for name, module in self._loaded_since()
            if name.partition(".")[0] not in ("penstock", "__main__", "__mp_main__")
            and (file := _file_of(module)).startswith(prefix)
            and not by_value.belongs_to_python(file)
        }

    def _loaded_since(self) -> list[tuple[str, ModuleType]]:
        """Return the modules loaded since this workspace was made, and perhaps earlier ones.

        A forked trainer shares thousands of modules with its fork server. Reading all of them takes
        30 ms, since each page of memory with one of them is copied.
        """
        try:
            names = list(takewhile(lambda name: name != self._last, reversed(sys.modules)))
        except RuntimeError:  # another thread has imported something meanwhile
            names = list(reversed(list(sys.modules)))
        return [(name, sys.modules[name]) for name in reversed(names) if name in sys.modules]


def _imported(target: str, path: str, digest: str) -> object:
    """Return code by name. Its script is imported up to the ``optimize()`` call with this code."""
    where, _, name = target.rpartition(":")
    script = where.endswith(".py")
    file = Path(where) if script else _source_of(where)
    if not file.is_file():
        raise BackendError(f"this node has no {file}, where the study's code should be")
    if digest.startswith(IMPORTS):
        if import_digest(file, "" if script else where, path) != digest:
            raise BackendError(
                f"{file} or what it imports (modules, packages, Python) differs on this node from"
                " that of the study, which has a data token"
            )
    elif file_digest(file) != digest:
        raise BackendError(f"{file} on this node differs from the file of the study")
    import_target = IMPORT_TARGET.set(name)
    try:
        module = import_script(file) if script else importlib.import_module(where)
        return walk(module, name)
    except Found as found:
        return found.code
    except AttributeError as error:
        raise TrialFailed("code", f"cannot import {target}: {error}") from error
    finally:
        IMPORT_TARGET.reset(import_target)


def _file_of(module: ModuleType) -> str:
    return getattr(module, "__file__", None) or ""


def _stamp(file: str) -> tuple[int, int]:
    """Return the modification time and size of a file; zeros if the file is gone."""
    try:
        status = Path(file).stat()
    except OSError:
        return (0, 0)
    return status.st_mtime_ns, status.st_size


def _source_of(module: str) -> Path:
    """Return the source file of ``module`` without running it. Its parent packages do run."""
    try:
        spec = importlib.util.find_spec(module)
    except ModuleNotFoundError:
        spec = None
    if spec is None or spec.origin is None:
        raise BackendError(f"this node has no module {module}, where the study's code should be")
    return Path(spec.origin)
