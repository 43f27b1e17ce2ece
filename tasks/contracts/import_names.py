"""Which modules a Python file imports at its top: what its process will need first."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path


def imported_names(file: Path) -> list[str]:
    """The modules that ``file`` imports when it is run, by their full names, in order.

    ``from a import b`` gives ``a`` and ``a.b``, which may be no module. Imports of its own package,
    and in functions, are left out. Empty if it is no readable Python file.
    """
    names: list[str] = []
    with suppress(OSError, SyntaxError, ValueError):
        for node in _imports(ast.parse(file.read_bytes()).body):
            if isinstance(node, ast.Import):
                names += [alias.name for alias in node.names]
            elif node.level == 0 and node.module is not None:
                names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return list(dict.fromkeys(name for name in names if name.isascii() and "*" not in name))


def _imports(body: Sequence[ast.stmt]) -> Iterator[ast.Import | ast.ImportFrom]:
    for node in body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif isinstance(node, ast.Try):
            yield from _imports(node.body)
