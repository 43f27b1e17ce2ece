"""What all tests need of the process that they run in, and which of them are never run again."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from invariants import is_invariant

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
