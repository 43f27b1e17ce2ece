"""Makes Optuna's functions return Penstock's studies in a notebook, by ``%load_ext penstock``."""

from __future__ import annotations

from contextlib import ExitStack

from ...app.client.study.optuna_scripts import on_devices
from ...app.client.study.script import say

_loaded = ExitStack()


def load() -> None:
    """Make ``optuna.create_study`` and ``optuna.load_study`` return Penstock's studies.

    A function that a cell imported from Optuna before keeps returning Optuna's studies.
    """
    unload()  # IPython loads an extension once, and a reload is both
    _loaded.enter_context(on_devices(say))


def unload() -> None:
    """Make Optuna's functions return Optuna's studies again.

    Studies that were made while the extension was loaded stay Penstock's.
    """
    _loaded.close()
