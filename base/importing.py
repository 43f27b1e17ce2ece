"""Imports of many modules at once."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def importing() -> Iterator[None]:
    """Turn garbage collection off during the block, which imports many modules.

    Imports create many objects and almost no garbage. Garbage collections during the import of
    torch would take a fifth of its time and free nothing.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
