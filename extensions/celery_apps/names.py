"""``penstock.celery``: what Penstock has for a Celery app of the user's.

``install`` has the app's workers serve the devices of their machines.
"""

from __future__ import annotations

from typing import Any

from .bootstep import install

__all__ = ["install"]


def __getattr__(name: str) -> Any:
    """Return the app of Penstock's own workers: ``celery -A penstock`` looks for it here."""
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ...app.worker.celery import app

    return app
