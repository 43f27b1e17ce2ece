"""Have CatBoost compute with the slot's cores, unless the user's code says otherwise.

Other libraries take their number of threads from variables that the worker sets for a trainer
(``app.node.launching.variables``). CatBoost reads none. By default it takes all cores of the
machine, so it takes cores of other slots or waits for them. So this module changes CatBoost's
*defaults*, as soon as user code imports it. A ``thread_count`` that user code passes stays.
Penstock itself never imports CatBoost. If a future version is built otherwise, it keeps CatBoost's
own defaults, and a warning is logged. A new process that user code starts (``spawn``) has
CatBoost's own defaults, too.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import FunctionType, ModuleType
from typing import Any

log = logging.getLogger(__name__)

#: CatBoost's name for the number of threads, and the value that stands for all of them.
_OPTION, _ALL = "thread_count", -1


def install() -> None:
    """Change CatBoost's defaults when it is imported in this process."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def slot_threads() -> int:
    """Return ``OMP_NUM_THREADS``, as other libraries read it, or this process's number of cores.

    The worker sets the variable, and user code may have changed it before it imports CatBoost.
    """
    text = os.environ.get("OMP_NUM_THREADS", "")
    return int(text) if text.isdecimal() and int(text) > 0 else len(os.sched_getaffinity(0))


class _Finder(MetaPathFinder):
    """Finds CatBoost's modules as Python does, and lets ``_Loader`` load them."""

    def __init__(self) -> None:
        self._changes: dict[str, Callable[[ModuleType, int], None]]
        self._changes = {"catboost.core": _change_core, "catboost.utils": _change_signatures}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        change = self._changes.get(fullname)
        spec = PathFinder.find_spec(fullname, path, target) if change else None
        if change and spec and spec.origin and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(fullname, spec.origin, change)
            return spec
        return None


class _Loader(SourceFileLoader):
    """Loads a module, and then changes it."""

    def __init__(self, name: str, path: str, change: Callable[[ModuleType, int], None]) -> None:
        super().__init__(name, path)
        self._change = change

    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        try:
            self._change(module, slot_threads())
        except (AttributeError, TypeError) as error:
            log.warning("%s computes with as many threads as it likes: %s", module.__name__, error)


def _change_core(core: ModuleType, threads: int) -> None:
    """Give training ``threads`` threads unless parameters of the model or the call set them."""
    _change_signatures(core, threads)
    prepare, cross_validate = core.CatBoost._prepare_train_params, core._cv

    @wraps(prepare)
    def prepare_train_params(*args: Any, **options: Any) -> Any:
        prepared = prepare(*args, **options)
        prepared["params"].setdefault(_OPTION, threads)
        return prepared

    def cv(params: dict[str, Any], *args: Any, **options: Any) -> Any:
        return cross_validate({_OPTION: threads} | params, *args, **options)

    core.CatBoost._prepare_train_params, core._cv = prepare_train_params, cv  # type: ignore[attr-defined]  # a foreign module


def _change_signatures(module: ModuleType, threads: int) -> None:
    """Change ``thread_count=-1`` to ``thread_count=threads`` in all functions of the module."""
    for function in _functions(module):
        defaults = function.__defaults__ or ()
        names = _arguments(function)[-len(defaults) :]
        function.__defaults__ = tuple(
            threads if (name, default) == (_OPTION, _ALL) else default
            for name, default in zip(names, defaults, strict=True)
        )


def _functions(module: ModuleType) -> Iterator[FunctionType]:
    """Yield the module's functions and methods that take ``thread_count`` and have defaults."""
    holders = [each for each in vars(module).values() if isinstance(each, type)]
    for holder in (module, *holders):
        for each in list(vars(holder).values()):
            is_own = isinstance(each, FunctionType) and each.__module__ == module.__name__
            if is_own and each.__defaults__ and _OPTION in _arguments(each):
                yield each


def _arguments(function: FunctionType) -> tuple[str, ...]:
    """Return the names of the positional arguments, to which ``__defaults__`` belong."""
    return function.__code__.co_varnames[: function.__code__.co_argcount]
