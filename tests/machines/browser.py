"""Headless Chromium for tests, which are skipped where there is none."""

from __future__ import annotations

from pathlib import Path

from machines.system import program

from testkit.browser import Browser


def browser_in(profile: Path) -> Browser:
    """A browser of its own, with its profile in this folder; it is to be closed."""
    program("chromium", "chromium")
    return Browser(profile)
