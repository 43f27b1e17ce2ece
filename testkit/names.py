"""The names that code binds, and the words of a name."""

from __future__ import annotations

import ast
import re


def bound_names(tree: ast.Module) -> set[str]:
    """Return the names of classes, functions, parameters and variables.

    Fields and attributes are left out: most of them are stored under their names.
    """
    fields = {
        line.target
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for line in node.body
        if isinstance(line, ast.AnnAssign)
    }
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node not in fields:
            names.add(node.id)
    return names


def words_of(name: str) -> list[str]:
    """Return the words of a name in snake case or camel case."""
    parts = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+", name)
    return [part.lower() for part in parts]
