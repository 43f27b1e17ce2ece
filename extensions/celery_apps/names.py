"""The module ``penstock.celery``: the names that users' Celery apps import from Penstock.

``wait_for`` makes a task that waits for a study, and ``install`` lets the app's workers serve the
devices of their machines. Each name is loaded at its first use, because ``celery -A penstock``
imports this module and needs none of the two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .bootstep import install
    from .waiting import wait_for

#: The module and the attribute of each name. ``app`` is Penstock's own Celery app.
_LAZY = {
    "app": ("...app.node.worker.celery", "app"),
    "install": (".bootstep", "install"),
    "wait_for": (".waiting", "wait_for"),
}

__all__ = ["install", "wait_for"]


def __getattr__(name: str) -> Any:
    """Return the value of a name, imported from the module that defines the name."""
    from importlib import import_module

    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _LAZY[name]
    value = globals()[name] = getattr(import_module(module, __package__), attribute)
    return value
