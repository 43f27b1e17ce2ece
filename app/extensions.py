"""The list of extensions, and their ends by name: the one way from the core to an extension.

An extension is a folder of ``extensions/``. Its ends are modules in it: ``scheduler`` for the
engine, ``trainer`` for the trainer, others for parts of ``app``. A folder that is not there is left
out, and what needs it is refused by its name.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from ..profiling.base.errors import UsageError
from ..scheduler.engine.engine import Plug

#: The extensions, in the order in which the engine and the trainer call them.
EXTENSIONS = ("limits",)

_PACKAGE = f"{__name__.split('.')[0]}.extensions"


@cache
def names(end: str) -> tuple[str, ...]:
    """Return the extensions that are there and have this end, in order."""
    return tuple(name for name in EXTENSIONS if _has(name, end))


def end_of(name: str, end: str, what: str) -> ModuleType:
    """Return an end of an extension.

    Raises UsageError if the folder is not there: ``what``, which the user asked for, needs it.
    """
    if not _has(name, end):
        raise UsageError(
            f"{what} needs the extension {name}, which this installation of Penstock does not have:"
            f" the folder extensions/{name} is missing. Install Penstock with it, or leave"
            f" {what} out"
        )
    return import_module(f"{_PACKAGE}.{name}.{end}")


def _has(name: str, end: str) -> bool:
    try:
        return find_spec(f"{_PACKAGE}.{name}.{end}") is not None
    except ModuleNotFoundError:
        return False


def _of_ends(end: str, value: str) -> tuple[Any, ...]:
    ends = (import_module(f"{_PACKAGE}.{name}.{end}") for name in names(end))
    return tuple(getattr(each, value) for each in ends if hasattr(each, value))


#: Makers of the engine's extensions, in the order in which it calls them.
PLUGS: tuple[Plug, ...] = _of_ends("scheduler", "plug")
#: Functions that move an extension's part of a snapshot of 0.2 (JSON) to where it is kept now.
CONVERSIONS: tuple[Callable[[dict[str, Any]], None], ...] = _of_ends("scheduler", "convert")
