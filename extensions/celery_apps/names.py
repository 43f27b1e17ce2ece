"""``penstock.celery``: what Penstock has for a Celery app of the user's.

``wait_for`` is a task that waits for a study, and ``install`` has the app's workers serve the
devices of their machines. Each name is loaded when first used: ``celery -A penstock`` imports this
module, and needs none of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .bootstep import install
    from .waiting import wait_for

#: Modules and names in them. ``app`` is that of our own workers, for ``celery -A penstock``.
_LAZY = {
    "app": ("...app.node.worker.celery", "app"),
    "install": (".bootstep", "install"),
    "wait_for": (".waiting", "wait_for"),
}

__all__ = ["install", "wait_for"]


def __getattr__(name: str) -> Any:
    """Return a name from the module that defines it."""
    from importlib import import_module

    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _LAZY[name]
    value = globals()[name] = getattr(import_module(module, __package__), attribute)
    return value
