"""The source of a user's function: its syntax tree, and the meaning of its names.

Theory of operation. In this module, a *slot* is a place where a script has an object: a global, a
variable of a function around the objective, or an attribute of the objective itself. Python's own
symbol table of the file tells which names of a function are slots. The source comes from
``linecache``, as for tracebacks, so that cells of a notebook are read, too.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import symtable
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from types import CellType, FunctionType
from typing import Any, Literal

Scope = Literal["global", "closure", "self"]


@dataclass(frozen=True, slots=True)
class Slot:
    """A place where a script has an object that its objective uses.

    It is a global of its module, a variable of a function around the objective, or an attribute of
    the objective itself.
    """

    scope: Scope
    name: str

    @property
    def shown(self) -> str:
        """The text by which the objective refers to the slot."""
        return f"self.{self.name}" if self.scope == "self" else self.name

    def get(self, objective: object) -> Any:
        """Return the slot's present value. Raises ``LookupError`` if there is none."""
        if self.scope == "self":
            attributes = getattr(owner(objective), "__dict__", {})
            if self.name in attributes:
                return attributes[self.name]
            try:
                return getattr(owner(objective), self.name)
            except Exception:  # there is none, or it is a property of the user's
                raise LookupError(self.name) from None
        if self.scope == "global":
            function = function_of(objective)
            return (function.__globals__ if function else {})[self.name]
        try:
            return self._cell(objective).cell_contents
        except ValueError:  # it is empty
            raise LookupError(self.name) from None

    def set(self, objective: object, value: Any) -> None:
        """Put ``value`` into the slot."""
        if self.scope == "self":
            setattr(owner(objective), self.name, value)
        elif self.scope == "global":
            function = function_of(objective)
            assert function is not None
            function.__globals__[self.name] = value
        else:
            self._cell(objective).cell_contents = value

    def _cell(self, objective: object) -> CellType:
        for function in reached(objective):
            cells = dict(
                zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
            )
            if self.name in cells:
                return cells[self.name]
        raise LookupError(self.name)


def owner(objective: object) -> object:
    """Return the instance of which ``objective`` is a method; if it is no method, the objective."""
    while isinstance(objective, partial):
        objective = objective.func
    return getattr(objective, "__self__", objective)


def function_of(objective: object) -> FunctionType | None:
    """Return the function that a call of ``objective`` runs; None if it is not in Python."""
    while isinstance(objective, partial):
        objective = objective.func
    function = getattr(objective, "__func__", objective)
    if not isinstance(function, FunctionType):
        function = inspect.getattr_static(type(objective), "__call__", None)
    function = inspect.unwrap(function) if callable(function) else function
    return function if isinstance(function, FunctionType) else None


def reached(objective: object) -> list[FunctionType]:
    """Return the objective's function and those of its module that it reaches, nearest first."""
    first = function_of(objective)
    if first is None:
        return []
    functions, waiting = {id(first): first}, [first]
    while waiting:
        function = waiting.pop(0)
        for each in _referred(function, owner(objective)):
            same = isinstance(each, FunctionType) and each.__globals__ is first.__globals__
            if same and id(each) not in functions:
                functions[id(each)] = each
                waiting.append(each)
    return list(functions.values())


def _referred(function: FunctionType, instance: object) -> Iterator[Any]:
    for name in _names(function.__code__):
        yield function.__globals__.get(name)
        yield inspect.getattr_static(type(instance), name, None)  # methods that it calls
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:
            continue


def _names(code: Any) -> Iterator[str]:
    yield from code.co_names
    for const in code.co_consts:
        if hasattr(const, "co_names"):
            yield from _names(const)


class FunctionSource:
    """The source of one function that an objective reaches."""

    def __init__(
        self, objective: object, function: FunctionType, node: Any, table: symtable.SymbolTable
    ) -> None:
        self.function = function
        self.node = node
        self._table = table
        self._inner = {(each.get_name(), each.get_lineno()): each for each in _tables(table)}
        names = [each.arg for each in (*node.args.posonlyargs, *node.args.args)]
        is_method = inspect.getattr_static(type(owner(objective)), node.name, None) is function
        self._self = names[0] if is_method and names else ""
        rest = names[1:] if self._self else names
        #: The names of the function's arguments, without ``self``.
        self.given = frozenset(rest)
        #: True for the objective itself.
        self.is_first = function is function_of(objective)
        #: The name of the function's argument for the trial, ``trial`` if not known.
        self.trial = rest[0] if self.is_first and rest and "trial" not in rest else "trial"
        local = {*function.__code__.co_varnames, *function.__code__.co_freevars}
        self.has_trial = self.trial in local
        #: The parent of each node, by the node's id.
        self.parents = {
            id(child): parent for parent in ast.walk(node) for child in ast.iter_child_nodes(parent)
        }

    def slot(self, node: ast.expr) -> Slot | None:
        """Return the script's slot that ``node`` names; None if it names none."""
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            return Slot("self", node.attr) if self._self and node.value.id == self._self else None
        if not isinstance(node, ast.Name):
            return None
        for table in self._around(node):
            try:
                symbol = table.lookup(node.id)
            except KeyError:
                continue
            if symbol.is_global():
                is_global = node.id in self.function.__globals__ or symbol.is_declared_global()
                return Slot("global", node.id) if is_global else None
            if not symbol.is_free():
                return None
        is_free = node.id in self.function.__code__.co_freevars
        return Slot("closure", node.id) if is_free else None

    def _around(self, node: ast.AST) -> list[symtable.SymbolTable]:
        """Return the symbol tables of the functions around ``node``, innermost first."""
        functions = []
        parent = self.parents.get(id(node))
        while parent is not None and parent is not self.node:
            if isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                functions.append(parent)
            parent = self.parents.get(id(parent))
        names = [(getattr(each, "name", "lambda"), each.lineno) for each in functions]
        return [*(self._inner[name] for name in names if name in self._inner), self._table]

    def uses(self, of: ast.expr) -> Iterator[tuple[ast.AST, ast.AST]]:
        """Yield each node of the function that is written as ``of``, with its parent node."""
        text = ast.dump(of)
        for node in ast.walk(self.node):
            if isinstance(node, ast.Name | ast.Attribute) and same(node, text):
                yield node, self.parents[id(node)]

    def origins(self, *values: ast.expr) -> set[str]:
        """Return the names from which ``values`` are computed in this function."""
        names: set[str] = set()
        waiting = {name for value in values for name in names_in(value)}
        while waiting:
            names |= waiting
            waiting = {
                name
                for target, value in self.assigned_names()
                if target in waiting
                for name in names_in(value)
            } - names
        return names

    def assigned_names(self) -> Iterator[tuple[str, ast.expr]]:
        """Yield each name that the function assigns, with the expression that is assigned."""
        for node in ast.walk(self.node):
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    for each, value in pairs(target, node.value):
                        if isinstance(each, ast.Name):
                            yield each.id, value


def parsed(function: FunctionType) -> tuple[ast.AST, symtable.SymbolTable] | None:
    """Return the syntax tree and the symbols of ``function``; None if its source cannot be read."""
    code = function.__code__
    lines = tuple(linecache.getlines(code.co_filename, function.__globals__))
    functions = _functions_in("".join(lines), code.co_filename)
    return functions.get((code.co_name, code.co_firstlineno))


@cache
def _functions_in(
    source: str, file: str
) -> Mapping[tuple[str, int], tuple[ast.AST, symtable.SymbolTable]]:
    """Return a source's functions by name and first line, which may be the line of a decorator."""
    try:
        tree, table = ast.parse(source), symtable.symtable(source, file, "exec")
    except (SyntaxError, ValueError):  # a notebook's cell may have magic
        return {}
    tables = {(each.get_name(), each.get_lineno()): each for each in _tables(table)}
    functions = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = [node.lineno, *(each.lineno for each in node.decorator_list)]
            symbols = [tables[node.name, line] for line in lines if (node.name, line) in tables]
            if symbols:
                functions[node.name, min(lines)] = (node, symbols[0])
    return functions


def _tables(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    for child in table.get_children():
        yield child
        yield from _tables(child)


def pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield each target of an assignment with the expression that is assigned to it."""
    if not isinstance(target, ast.Tuple | ast.List):
        yield target, value
        return
    values = value.elts if isinstance(value, ast.Tuple | ast.List) else []
    fits = len(values) == len(target.elts)
    for k, each in enumerate(target.elts):
        yield from pairs(each, values[k] if fits else value)


def same(node: ast.AST, text: str) -> bool:
    """Return True if ``node`` is written as ``text`` (``ast.dump``), whether read or assigned."""
    return ast.dump(node).replace("Load()", "Store()") == text.replace("Load()", "Store()")


def names_in(value: ast.expr) -> set[str]:
    """Return the names in an expression."""
    return {node.id for node in ast.walk(value) if isinstance(node, ast.Name)}
