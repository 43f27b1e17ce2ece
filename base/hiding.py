"""Detection of a user's file that has the name of a library and so hides it, or is hidden by it.

Python searches the script's folder first. If a ``queue.py`` lies there, every library that imports
Python's own ``queue`` gets that file, and fails with an error that does not name it. This module
imports little, because its own imports may be hidden too.
"""

from __future__ import annotations

# ruff: noqa: PTH100, PTH112, PTH113, PTH118, PTH120
# No pathlib: it may itself be hidden.
import os
import sys
from collections.abc import Iterator
from importlib.machinery import PathFinder

from .errors import UsageError

#: The most errors of a chain of causes that are examined.
_LINKS = 20


def hidden(error: BaseException) -> str:
    """Return advice if a file with a library's name caused ``error``; empty if none did."""
    for name in _names(error):
        for folder in _users_folders():
            for file in (f"{name}.py", os.path.join(name, "__init__.py")):
                path = os.path.join(folder, file)
                if os.path.isfile(path) and (library := _library(name, folder)):
                    return (
                        f"{path} has the name of {library}, so that one hides the other: rename it"
                    )
    return ""


def explained(error: Exception) -> Exception:
    """Return ``error``, or a ``UsageError`` if a file with a library's name caused it."""
    reason = hidden(error)
    return UsageError(f"{reason} ({type(error).__name__}: {error})") if reason else error


def _names(error: BaseException | None) -> Iterator[str]:
    """Yield the names of modules that could not be imported, or only in part.

    The names are taken from ``error`` and from the chain of its causes.
    """
    for _ in range(_LINKS):
        if error is None:
            return
        name = None
        if isinstance(error, ImportError):
            name = error.name
        elif isinstance(error, AttributeError) and isinstance(error.obj, type(sys)):
            name = error.obj.__name__
        if name:
            yield name.partition(".")[0]
        error = error.__cause__ or error.__context__


def _users_folders() -> list[str]:
    """Return the folders on ``sys.path``, except Python's own and those of installed libraries."""
    python = os.path.dirname(os.__file__)
    folders = [os.path.abspath(folder) for folder in sys.path]
    return [
        folder
        for folder in folders
        if not folder.startswith(python)
        and "site-packages" not in folder
        and "dist-packages" not in folder
        and os.path.isdir(folder)
    ]


def _library(name: str, folder: str) -> str:
    """Describe the library ``name`` found outside ``folder``; empty if there is none."""
    if name in sys.stdlib_module_names:
        return f"Python's module {name}"
    folders = [other for other in sys.path if os.path.abspath(other) != folder]
    return f"the library {name}" if PathFinder.find_spec(name, folders) else ""
