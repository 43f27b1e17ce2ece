"""Marks the tests of benchmarks like those of the package."""

from __future__ import annotations

from pathlib import Path

import pytest
from invariants import is_invariant

from testkit.marks import pytest_ignore_collect, pytest_runtest_setup  # noqa: F401 - for pytest

ROOT = Path(__file__).parents[1]


def pytest_itemcollected(item) -> None:
    if is_invariant(item.path.relative_to(ROOT).as_posix(), item.originalname):
        item.add_marker(pytest.mark.invariant)
