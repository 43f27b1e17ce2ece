"""Penstock: hyperparameter tuning as a stream of epoch-sized tasks on Celery."""

from __future__ import annotations

from typing import Any

#: Public names, loaded on first use: importing Penstock costs nothing.
_LAZY = {
    "celery": "app.celery:app",
}


def __getattr__(name: str) -> Any:
    """A public name from the module that defines it."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    module, attribute = _LAZY[name].split(":")
    value = getattr(import_module(f".{module}", __name__), attribute)
    globals()[name] = value
    return value
