"""Programs of the system that tests run: where CI lacks one a test fails, elsewhere it is skipped."""

from __future__ import annotations

import os
import shutil

import pytest


def program(name: str, package: str) -> str:
    """The path of ``name``, which Debian's ``package`` has."""
    found = shutil.which(name)
    if found is None:
        missing = f"there is no {name} here: apt install {package}"
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(missing)
    return found


def promtool() -> str:
    return program("promtool", "prometheus")
