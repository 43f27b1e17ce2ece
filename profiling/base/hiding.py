"""A file of the user's that has the name of a library, and so takes its place, or is not found.

Python looks for modules beside the script first: a ``queue.py`` there is what every library gets
that imports Python's own ``queue``. It fails then in ways that do not name the file. Little is
imported here: it may be the very thing that cannot be.
"""

from __future__ import annotations

# ruff: noqa: PTH100, PTH112, PTH113, PTH118, PTH120
# No pathlib: it may be what is hidden.
import os
import sys
from collections.abc import Iterator
from importlib.machinery import PathFinder

from .errors import UsageError

#: Errors of a chain that are looked at.
_LINKS = 20


def hidden(error: BaseException) -> str:
    """What to do where a file that is called like a library is behind ``error``; else empty."""
    for name in _names(error):
        for folder in _users_folders():
            for file in (f"{name}.py", os.path.join(name, "__init__.py")):
                path = os.path.join(folder, file)
                if os.path.isfile(path) and (what := _library(name, folder)):
                    return f"{path} has the name of {what}, so that one hides the other: rename it"
    return ""


def explained(error: Exception) -> Exception:
    """``error``, or a ``UsageError`` where a file that is called like a library is behind it."""
    words = hidden(error)
    return UsageError(f"{words} ({type(error).__name__}: {error})") if words else error


def _names(error: BaseException | None) -> Iterator[str]:
    """The modules that an error, or what led to it, could not be imported from or lacks a name."""
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
    """Where modules are looked for, but for Python's own folders and those of installed ones."""
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
    """Which library of this name is anywhere but in ``folder``; empty where there is none."""
    if name in sys.stdlib_module_names:
        return f"Python's module {name}"
    others = [other for other in sys.path if os.path.abspath(other) != folder]
    return f"the library {name}" if PathFinder.find_spec(name, others) else ""
