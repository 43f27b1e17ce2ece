"""Runs scripts that import Optuna alone: its studies are made here, on all devices.

While such a script runs, ``optuna.create_study`` and ``optuna.load_study`` give Penstock's studies.
A study that a script names is new in each run, as it is in Optuna's memory, unless it has a
storage. In trainers nothing is changed: studies that an objective creates are plain Optuna's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

from .handle import AS_OPTUNA


@contextmanager
def on_devices(say: Callable[[str], None]) -> Iterator[None]:
    """Optuna's studies are Penstock's meanwhile. ``say`` shows one line, when the first is made."""
    import optuna
    from optuna.study import study as module

    first = [say]
    plain = {name: getattr(module, name) for name in ("create_study", "load_study")}
    # Not in its own module: what Optuna itself builds on them, such as copy_study, stays plain.
    modules: tuple[Any, ...] = (optuna, optuna.study)
    try:
        for name, function in plain.items():
            for holder in modules:
                setattr(holder, name, _ours(function, first))
        yield
    finally:
        for name, function in plain.items():
            for holder in modules:
                setattr(holder, name, function)


def _ours(function: Any, first: list[Callable[[str], None]]) -> Any:
    """Penstock's function in place of Optuna's."""
    from . import create

    ours: Any = getattr(create, function.__name__)

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        while first:
            first.pop()("Optuna's studies run on Penstock's devices; python runs them plainly")
        token = AS_OPTUNA.set(True)
        try:
            return ours(*args, **kwargs)
        finally:
            AS_OPTUNA.reset(token)

    return call
