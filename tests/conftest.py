"""Setup of the process for all tests, and the choice of tests that are never run again.

A test that needs an extension is in ``tests/extensions/NAME``, or marked with
``pytest.mark.extension("NAME")``. Where the extension's folder is not there, tests that are marked
are skipped. Files of which all tests need it, by their place or their ``pytestmark``, are not even
imported, as they may import it.
"""

from __future__ import annotations

import ast
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from invariants import is_invariant
from penstock.app import extensions
from penstock.app.extensions import lacking

TESTS = Path(__file__).parent
#: The folder of the extensions' tests.
OF_EXTENSIONS = TESTS / "extensions"
EXTENSION_MARK = "pytest.mark.extension"


def pytest_configure() -> None:
    """Hear SIGINT, which a shell has ignored by what it starts in the background.

    Processes that tests start would ignore it, too, and tests press Ctrl-C.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_itemcollected(item) -> None:
    if is_invariant(item.path.relative_to(TESTS).as_posix(), item.originalname):
        item.add_marker(pytest.mark.invariant)
    if (name := extension_of(item.path)) is not None:
        item.add_marker(pytest.mark.extension(name))


def pytest_ignore_collect(collection_path) -> bool | None:
    return None if all(map(is_there, needed_by(collection_path))) else True


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item) -> None:
    for mark in item.iter_markers("extension"):
        for name in mark.args:
            if not is_there(name):
                pytest.skip(f"the folder extensions/{name} is not there")


@pytest.fixture
def nothing_there(monkeypatch) -> Iterator[None]:
    """Have no extension be there. What is kept of that meanwhile is forgotten with it."""
    with monkeypatch.context() as patched:
        patched.setattr(extensions, "names", lambda end: ())
        yield
    extensions.of_ends.cache_clear()
    extensions.states.cache_clear()


def extension_of(path: Path) -> str | None:
    """The extension whose tests are in a file or folder."""
    if not path.is_relative_to(OF_EXTENSIONS):
        return None
    return next(iter(path.relative_to(OF_EXTENSIONS).parts), None)


def needed_by(path: Path) -> Iterator[str]:
    """Yield the extensions that all tests of a file or folder need."""
    if (name := extension_of(path)) is not None:
        yield name
    if path.suffix != ".py" or EXTENSION_MARK not in (text := path.read_text()):
        return
    for statement in ast.parse(text).body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "pytestmark":
            for call in ast.walk(statement.value):
                if isinstance(call, ast.Call) and ast.unparse(call.func) == EXTENSION_MARK:
                    yield from (ast.literal_eval(each) for each in call.args)


def is_there(name: str) -> bool:
    return lacking(name) is None
