"""Counts what is read: docstrings that open badly, words for fused groups, pages, the glossary.

A docstring or a described value opens badly by the rules of ``testkit.words``. The words for fused
groups are the group's own and each retired one that still names a class, function, parameter or
variable; fields of values keep the names under which they are stored.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

from testkit import words
from testkit.package import Package

#: Words that trials trained in one process once had.
RETIRED = ("lockstep", "company", "party", "seated")


def texts(package: Package) -> dict[str, Any]:
    """Return the figures of a checkout's docstrings, names and pages."""
    docs = package.root / "docs"
    pages = [page for page in docs.rglob("*.md") if "history" not in page.parts]
    odd = {file: _odd_openings(package.root / file) for file in package.trees}
    still_named = _named(package) & {*RETIRED}
    return {
        "docstrings.odd_openings": sum(odd.values()),
        "docstrings.odd_openings.files": {file: n for file, n in odd.items() if n},
        "words_for_fused": 1 + len(still_named),
        "words_for_fused.words": sorted(still_named),
        "docs_words": sum(len(page.read_text().split()) for page in pages),
        "glossary.entries": _rows(docs / "glossary.md"),
    }


def _odd_openings(file: Path) -> int:
    return sum("opens with" in finding.said for finding in words.findings(file))


def _named(package: Package) -> set[str]:
    """Return the parts of all names of classes, functions, parameters and variables."""
    names = set()
    for tree in package.trees.values():
        fields = {
            line.target
            for node in ast.walk(tree)
            if isinstance(node, ast.ClassDef)
            for line in node.body
            if isinstance(line, ast.AnnAssign)
        }
        for node in ast.walk(tree):
            match node:
                case ast.ClassDef(name) | ast.FunctionDef(name) | ast.AsyncFunctionDef(name):
                    names.add(name)
                case ast.arg(name):
                    names.add(name)
                case ast.Name(name, ast.Store()) if node not in fields:
                    names.add(name)
    return {part for name in names for part in name.lower().split("_")}


def _rows(page: Path) -> int:
    """Return the number of rows of the tables of a page, without their heads."""
    if not page.exists():
        return 0
    lines = [line for line in page.read_text().splitlines() if line.startswith("|")]
    return len(lines) - 2 * sum(line.startswith("|---") for line in lines)
