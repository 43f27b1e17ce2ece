"""Setup of the process for all tests, and the choice of tests that are never run again.

A test that needs an extension is in ``tests/extensions/NAME``, or marked with
``pytest.mark.extension("NAME")``. Where the extension's folder is not there, tests that are marked
are skipped. Files of which all tests need it, by their place or their ``pytestmark``, are not even
imported, as they may import it.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from invariants import is_invariant
from penstock.app import extensions

from testkit.marks import (
    extension_of,
    pytest_ignore_collect,  # noqa: F401 - pytest finds it here
    pytest_runtest_setup,  # noqa: F401
)

TESTS = Path(__file__).parent


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


@pytest.fixture
def nothing_there(monkeypatch) -> Iterator[None]:
    """Have no extension be there. What is kept of that meanwhile is forgotten with it."""
    with monkeypatch.context() as patched:
        patched.setattr(extensions, "names", lambda end: ())
        yield
    extensions.of_ends.cache_clear()
    extensions.states.cache_clear()
