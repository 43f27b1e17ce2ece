"""Runs scripts that import only Optuna: the studies they create run on Penstock's devices.

While such a script runs, ``optuna.create_study`` and ``optuna.load_study`` return Penstock's
studies. A study that a script names is new in each run, like one in Optuna's in-memory storage,
unless the script gives a storage. In trainers nothing is replaced: studies that an objective
creates are plain Optuna studies.

A study that a library builds directly as ``optuna.study.Study`` stays an Optuna study, since such a
library relies on more than Optuna's interface: the steps of ``LightGBMTuner`` read what the
objective has left in memory. A message says that such a study runs in this process.
"""

from __future__ import annotations

import mmap
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

from .handle import StudyHandle, running, script_run


class _Studies:
    """The studies of one script, and the messages about where they run."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._handles: list[StudyHandle] = []
        #: The storages of plain Optuna studies, by the module that built the studies.
        self._plain: dict[str, list[Any]] = {}
        #: One byte that forked processes share: set once a study ran on devices.
        self._ran = mmap.mmap(-1, 1)

    def add(self, handle: StudyHandle) -> None:
        """Note a study that the script made, so that its first run is announced."""
        handle.announce = self._announce
        self._handles.append(handle)

    def _announce(self) -> None:
        if self._ran[0] == 0:
            self._ran[0] = 1
            self._say("Optuna's studies run on Penstock's devices; python runs them plainly")

    def add_plain(self, study: Any, builder: str) -> None:
        """Note that the module ``builder`` runs a plain Optuna study.

        The user is told once for each such module.
        """
        if builder not in self._plain:
            self._say(
                f"{builder} builds its study as optuna.study.Study itself: its trials run in this"
                " process, not on Penstock's devices"
            )
        self._plain.setdefault(builder, []).append(study._storage)

    def aside(self) -> Iterator[str]:
        """Yield reasons why studies of the script did not run on devices."""
        for builder in self._plain:
            yield f"{builder} builds its studies itself"
        if self._ran[0]:
            if all(handle.spec is None for handle in self._handles):
                yield "only processes that it forked did (penstock ls)"
            return  # what was made here may be what they have loaded
        storages_in_use = [storage for storages in self._plain.values() for storage in storages]
        unused = [each for each in self._handles if each.spec is None]
        idle = [each for each in unused if not any(each.memory is own for own in storages_in_use)]
        for name in dict.fromkeys(each.study_name for each in idle):
            yield (
                f"{name} was made here and not run here (a new process that a script starts runs"
                " plain Optuna)"
            )


@contextmanager
def on_devices(say: Callable[[str], None]) -> Iterator[None]:
    """Replace Optuna's studies by Penstock's within the context.

    ``say`` shows a line when the first study runs.
    """
    import optuna
    from optuna.study import study as module

    studies = _Studies(say)
    plain = {name: getattr(module, name) for name in ("create_study", "load_study")}
    optimize: Any = module.Study.optimize
    # The functions stay as they are in their own module, where copy_study and the like use them.
    modules: tuple[Any, ...] = (optuna, optuna.study)
    try:
        for name, function in plain.items():
            for holder in modules:
                setattr(holder, name, _ours(function, studies))
        setattr(module.Study, "optimize", _noted(optimize, studies))  # noqa: B010 - it is typed
        yield
    finally:
        setattr(module.Study, "optimize", optimize)  # noqa: B010 - as above
        for name, function in plain.items():
            for holder in modules:
                setattr(holder, name, function)
        if (aside := script_run().aside) is not None:
            aside += studies.aside()


def _ours(function: Any, studies: _Studies) -> Any:
    """Return Penstock's function of the same name as Optuna's ``function``."""
    from . import create

    replacement: Any = getattr(create, function.__name__)

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with running(as_optuna=True):
            study = replacement(*args, **kwargs)
        studies.add(study._handle)
        return study

    return call


def _noted(optimize: Any, studies: _Studies) -> Any:
    """Wrap Optuna's ``Study.optimize`` to note each plain Optuna study that runs here."""
    from .study import Study

    @wraps(optimize)
    def call(study: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(study, Study):
            studies.add_plain(study, str(sys._getframe(1).f_globals.get("__name__")))
        return optimize(study, *args, **kwargs)

    return call
