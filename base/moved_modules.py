"""Modules that had another name in an earlier version, which what was written then still has.

A pickle names classes, functions and modules by where they were, and so does a digest.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterable
from importlib import import_module
from typing import Any

#: By the name that a package or module had: the one that it has now. The first that fits counts, so
#: parts of a package come before it.
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
    """Return the name that a module has which was once called ``name``."""
    return _renamed(name, MOVED.items())


def module_then(name: str) -> str:
    """Return the name that a module had first which is called ``name`` now."""
    return _renamed(name, ((now, then) for then, now in MOVED.items()))


def loads(content: bytes) -> Any:
    """Return the object in a pickle, which may name modules as they were called once.

    Raises what the pickle's classes do. Whoever calls it trusts the content.
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
    for one, other in names:
        if name == one or name.startswith(f"{one}."):
            return other + name[len(one) :]
    return name
