"""Counts what is read: docstrings that open badly, words for fused groups, pages, the glossary.

A docstring or a described value opens badly by the rules of ``testkit.words``. The words for fused
groups are the group's own and each retired one, in the last column of its row of the glossary, that
still names a class, function, parameter or variable.
"""

from __future__ import annotations

import re
from typing import Any

from testkit import words
from testkit.names import bound_names, words_of
from testkit.package import Package


def texts(package: Package) -> dict[str, Any]:
    """Return the figures of a checkout's docstrings, names and pages."""
    docs = package.root / "docs"
    pages = [page for page in docs.rglob("*.md") if "history" not in page.parts]
    odd = {
        file: sum("opens with" in each.said for each in words.findings(package.root / file))
        for file in package.trees
    }
    glossary = re.findall(
        r"^\| (?!word )(.*?) \|.*\|(.*)\|$", (docs / "glossary.md").read_text(), re.M
    )
    retired = {*re.findall(r"`(\w+)`", dict(glossary).get("Fused group", ""))}
    used = {
        word for tree in package.trees.values() for n in bound_names(tree) for word in words_of(n)
    }
    return {
        "docstrings.odd_openings": sum(odd.values()),
        "docstrings.odd_openings.files": {file: n for file, n in odd.items() if n},
        "words_for_fused": 1 + len(retired & used),
        "words_for_fused.words": sorted(retired & used),
        "docs_words": sum(len(page.read_text().split()) for page in pages),
        "glossary.entries": len(glossary),
    }
