"""Modules that were renamed, so that pickles and digests of earlier versions still work.

A pickle names its classes, functions and modules by the module that they were in, and so does a
digest.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterable
from importlib import import_module
from typing import Any

#: New names of packages and modules, by old name. The first match counts, so a package's parts come
#: before the package.
MOVED = {
    "penstock.tasks.nas.graphs": "penstock.extensions.nas.graphs",
    "penstock.tasks.nas.paths": "penstock.tasks.training.paths",
    "penstock.tasks.training.counting": "penstock.extensions.nas.models.counting",
    "penstock.tasks.nas": "penstock.extensions.nas.models",
    "penstock.tasks.training.rebuilt": "penstock.extensions.nas.rebuilt",
    "penstock.app.nas": "penstock.extensions.nas",
    "penstock.app.study": "penstock.app.client.study",
    "penstock.profiling.base": "penstock.base",
    "penstock.tasks.adapters": "penstock.extensions.adapters",
}


def module_now(name: str) -> str:
    """Return the present name of the module once called ``name``."""
    return _renamed(name, MOVED.items())


def module_then(name: str) -> str:
    """Return the first name of the module now called ``name``."""
    return _renamed(name, ((now, then) for then, now in MOVED.items()))


def loads(content: bytes) -> Any:
    """Return the object in a pickle, which may refer to modules by their old names.

    Raises any error that the pickle's classes raise. The caller must trust the content.
    """
    return _Unpickler(io.BytesIO(content)).load()


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if name == "subimport" and module.startswith("cloudpickle."):
            return _module  # it gives modules that code refers to
        return super().find_class(module_now(module), name)


def _module(name: str) -> Any:
    return import_module(module_now(name))


def _renamed(name: str, names: Iterable[tuple[str, str]]) -> str:
    for old, other in names:
        if name == old or name.startswith(f"{old}."):
            return other + name[len(old) :]
    return name
