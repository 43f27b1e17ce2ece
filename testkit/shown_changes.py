"""Reads the changes that CONTRIBUTING.md shows."""

from __future__ import annotations

import re
from collections.abc import Iterator

from testkit.checkouts import ROOT


def hunks(section: str) -> Iterator[tuple[str, str, str]]:
    """Yield file, lines before and lines after of each change that CONTRIBUTING.md shows there."""
    text = (ROOT / "CONTRIBUTING.md").read_text().partition(f"## {section}\n")[2]
    shown = re.search(r"^```diff\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert shown, section
    for hunk in re.split(r"^--- ", shown[1], flags=re.MULTILINE)[1:]:
        file, *lines = hunk.splitlines()
        before, after = ([line[1:] for line in lines if line[0] in kept] for kept in (" -", " +"))
        yield file, "\n".join(before), "\n".join(after)
