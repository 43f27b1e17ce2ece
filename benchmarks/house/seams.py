"""Measures the seams between the core and its extensions, from the package's files (``Package``).

An extension is a folder of ``extensions/``; everything else is the core. Imports by
``app/extensions.py``, the list of extensions, do not count. Statements are counted by AST,
docstrings apart. The collaborators of a part of the engine are what ``Engine.__init__`` hands it by
keyword. The fields of a record are its own and those of the records in it that no other record has:
what is moved into one counts as before.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from typing import Any

from testkit.package import Package

EXTENSIONS, LIST = "extensions/", "app/extensions.py"
#: The folder of all extensions is none. For type checkers it has the names that they make public.
STUBS = "extensions/__init__.py"
#: The file of the loop that trains a segment.
LOOP = "tasks/trainer/segment.py"
#: The file in which the parts of the engine are made.
ENGINE = "scheduler/engine/engine.py"
#: The records into which features put their fields.
RECORDS = ("SegmentTask", "StudyState", "Trial")


def seams(package: Package) -> dict[str, Any]:
    """Return all figures of the seams."""
    core = [file for file in package.trees if not file.startswith(EXTENSIONS)]
    crossing = [
        f"{file} imports {target}"
        for file in core
        for target in sorted(package.graph[file])
        if target.startswith(EXTENSIONS) and target != STUBS and file != LIST
    ]
    statements = {file: _statements(tree) for file, tree in package.trees.items()}
    product, of_core = sum(statements.values()), sum(statements[file] for file in core)
    parts = _collaborators(package)
    fields = {name: _fields(package, name) for name in RECORDS}
    loads = sorted(_loaded(package, LOOP))
    return {
        "core_imports_extension": len(crossing),
        "core_imports_extension.where": crossing,
        "statements.product": product,
        "statements.core": of_core,
        "statements.extensions": product - of_core,
        "segment_loads": len(loads),
        "segment_loads.files": loads,
        "collaborators.max": max(parts.values(), default=0),
        "collaborators": dict(sorted(parts.items(), key=lambda part: -part[1])),
        "fields.max": max(fields.values()),
        "fields": fields,
    }


def _statements(tree: ast.Module) -> int:
    return sum(isinstance(node, ast.stmt) for node in ast.walk(tree)) - sum(
        ast.get_docstring(node, clean=False) is not None
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    )


def _loaded(package: Package, file: str) -> set[str]:
    """Return what a file imports when it runs, at its top or in its functions."""
    typing = {
        id(node)
        for block in ast.walk(package.trees[file])
        if isinstance(block, ast.If) and "TYPE_CHECKING" in ast.unparse(block.test)
        for node in ast.walk(block)
    }
    return package.imported(file, typing)


def _collaborators(package: Package) -> dict[str, int]:
    """Count what ``Engine.__init__`` hands each part that it makes."""
    calls = [
        node
        for made in ast.walk(package.trees[ENGINE])
        if isinstance(made, ast.FunctionDef) and made.name == "__init__"
        for node in ast.walk(made)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    ]
    found = Counter[str]()
    for call in calls:
        handed = sum(keyword.arg is not None for keyword in call.keywords)
        found[call.func.id] = max(found[call.func.id], handed)
    return dict(found)


def _fields(package: Package, name: str) -> int:
    """Count the fields of a record, and of the records that it alone has."""
    records = {
        each: [line for line in made.body if isinstance(line, ast.AnnAssign)]
        for tree in package.trees.values()
        for made in ast.walk(tree)
        if isinstance(made, ast.ClassDef)
        for each in [made.name]
    }
    holders = Counter(
        held
        for lines in records.values()
        for held in {node.id for line in lines for node in _names(line.annotation)}
    )

    def count(record: str) -> int:
        total = 0
        for line in records[record]:
            held = {node.id for node in _names(line.annotation)} & records.keys()
            alone = [each for each in held if holders[each] == 1 and each != record]
            total += sum(map(count, alone)) or 1
        return total

    return count(name)


def _names(annotation: ast.expr) -> Iterator[ast.Name]:
    return (node for node in ast.walk(annotation) if isinstance(node, ast.Name))
