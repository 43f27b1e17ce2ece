"""The libraries that a Python file imports before it does anything else.

If another process imports them ahead, this must not change the file's meaning. So the list ends at
the first statement on which the import of a library could depend: one that sets an environment
variable, calls a function, or imports a module of the user's own.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path


def imported_names(file: Path, folder: Path | None = None) -> list[str]:
    """Return the modules that ``file`` imports first when it is run, by their full names, in order.

    ``from a import b`` gives ``a`` and ``a.b``, though ``a.b`` may be no module. Imports in
    functions are left out. ``folder`` is where the user's own modules are, by default the file's
    folder. The result is empty if ``file`` is no readable Python file.
    """
    names: list[str] = []
    with suppress(OSError, SyntaxError, ValueError):
        for node in _first_imports(ast.parse(file.read_bytes()).body):
            new_names = _names_in(node)
            if not new_names or any(is_in(folder or file.parent, name) for name in new_names):
                break
            names += new_names
    return list(dict.fromkeys(name for name in names if name.isascii() and "*" not in name))


def is_in(folder: Path, name: str) -> bool:
    """Return True if the user's ``folder`` contains the top-level module of ``name``."""
    top = name.partition(".")[0]
    return (folder / f"{top}.py").is_file() or (folder / top / "__init__.py").is_file()


def _names_in(node: ast.Import | ast.ImportFrom) -> list[str]:
    """Return the modules of one import; none if it is relative, and thus the user's own."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if node.level or node.module is None:
        return []
    return [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]


def _first_imports(body: Sequence[ast.stmt]) -> Iterator[ast.Import | ast.ImportFrom]:
    """Yield the imports before the first statement that may have an effect."""
    for node in _flat(body):
        match node:
            case ast.Import() | ast.ImportFrom():
                yield node
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                pass
            case ast.Expr(value=ast.Constant()) | ast.If(test=ast.Name(id="TYPE_CHECKING")):
                pass
            case ast.Assign(targets=[ast.Name()], value=ast.Constant()):
                pass
            case _:
                return


def _flat(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements that run one after another if no import fails."""
    for node in body:
        if isinstance(node, ast.Try):
            yield from _flat(node.body)
        else:
            yield node
