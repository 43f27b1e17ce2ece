"""Programs of the system that tests run."""

from __future__ import annotations

import os
import shutil
from typing import NoReturn

import pytest


def program(name: str, package: str) -> str:
    """The path of ``name``, which ``package`` brings."""
    found = shutil.which(name)
    return found or missing(f"there is no {name} here: install {package}")


def missing(what: str) -> NoReturn:
    """Skip; but fail where all tests have to run."""
    (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(what)
