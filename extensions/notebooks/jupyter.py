"""``%load_ext penstock``: Optuna's studies of a notebook are Penstock's while it is loaded."""

from __future__ import annotations

from contextlib import ExitStack

from ...app.client.study.optuna_scripts import on_devices
from ...app.client.study.script import say

_loaded = ExitStack()


def load() -> None:
    """Have ``optuna.create_study`` and ``load_study`` give Penstock's studies.

    Functions that a cell has imported from Optuna before stay Optuna's.
    """
    unload()  # IPython loads an extension once, and a reload is both
    _loaded.enter_context(on_devices(say))


def unload() -> None:
    """Have them give Optuna's studies again. The studies made meanwhile stay Penstock's."""
    _loaded.close()
