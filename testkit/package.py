"""Reads the structure of the package by AST: folders, imports, cycles, classes, functions.

Nothing is imported, so any checkout can be read. An import counts wherever it stands: at the top,
in a function, under ``TYPE_CHECKING``. One by a text (``import_module``) does not.
"""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

NAME = "penstock"
#: The package's folders; ``__init__.py`` and ``__main__.py`` belong to it, too.
FLOORS = ("app", "base", "extensions", "profiling", "scheduler", "tasks", "wire")
#: Nodes of acts beyond declarations: choices, loops, handlers, and functions in functions.
ACTS = (
    ast.If, ast.IfExp, ast.For, ast.AsyncFor, ast.While, ast.Try, ast.TryStar, ast.With,
    ast.AsyncWith, ast.Match, ast.comprehension, ast.FunctionDef, ast.AsyncFunctionDef,
    ast.ClassDef, ast.Lambda, ast.Yield, ast.YieldFrom, ast.Raise,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Function:
    """A function or method: ``lines`` from ``def`` to its end, ``docstring`` those of its text.

    A pure declaration (``declares``) has nothing of ``ACTS`` in its body: a table, a list of calls.
    """

    file: str
    name: str
    lines: int
    docstring: int
    arguments: int
    declares: bool


@dataclass(frozen=True, slots=True)
class Class:
    """A class of ours and its bases, as far as they are ours: (file, name) each."""

    file: str
    name: str
    bases: tuple[tuple[str, str], ...]


class Package:
    """The package of the checkout at ``root``. Files are named by their path in it."""

    def __init__(self, root: Path) -> None:
        self._read(root, FLOORS, [root / "__init__.py", root / "__main__.py"])

    def _read(self, root: Path, folders: Iterable[str], paths: list[Path]) -> None:
        self.root = root
        paths = [path for each in folders for path in sorted((root / each).rglob("*.py"))] + paths
        self.trees = {
            path.relative_to(root).as_posix(): ast.parse(path.read_text()) for path in paths
        }

    @cached_property
    def rooms(self) -> dict[str, list[str]]:
        """The files of each folder, with ``__init__.py``, but without the steps of the schema."""
        found = defaultdict(list)
        for file in self.trees:
            room, _, name = file.rpartition("/")
            if room:
                found[room].append(name)
        return dict(found)

    # -- imports ---------------------------------------------------------------------------------

    @cached_property
    def graph(self) -> dict[str, set[str]]:
        """Files of the package that each of them imports."""
        return {file: self.imported(file) for file in self.trees}

    @cached_property
    def circles(self) -> list[tuple[str, ...]]:
        """Files that reach each other by imports: the graph's strongly connected components."""
        reached = {file: self._reached(file) for file in self.trees}
        found = {
            tuple(sorted(other for other in reached[file] if file in reached[other]))
            for file in self.trees
        }
        return sorted(circle for circle in found if len(circle) > 1)

    def _reached(self, file: str) -> set[str]:
        reached, todo = set(), [file]
        while todo:
            for target in self.graph[todo.pop()] - reached:
                reached.add(target)
                todo.append(target)
        return reached

    def imported(self, file: str, without: Set[int] = frozenset()) -> set[str]:
        """Return the files that ``file`` imports, but by the statements of these ids (``id``)."""
        return {target for target, _, _ in self._imported(file, without)} - {file}

    def _imported(
        self, file: str, without: Set[int] = frozenset()
    ) -> Iterator[tuple[str, str, str]]:
        """(file, name there, name here) of each import of ours; name there "": the whole module."""
        for node in ast.walk(self.trees[file]):
            if id(node) in without:
                continue
            if isinstance(node, ast.Import):
                for alias in node.names:
                    parts = self._below(alias.name.split("."))
                    target = self._file(parts) if parts is not None else None
                    if target is not None:
                        yield target, "", alias.asname or alias.name
            elif isinstance(node, ast.ImportFrom):
                parts = self._parts(file, node)
                for alias in node.names if parts is not None else ():
                    here = alias.asname or alias.name
                    module = self._file([*parts, alias.name])
                    if module is not None:
                        yield module, "", here
                    elif (target := self._file(parts)) is not None:
                        yield target, alias.name, here

    def _parts(self, file: str, node: ast.ImportFrom) -> list[str] | None:
        """The path below the package of what ``from ... import`` names; None where not ours."""
        module = node.module.split(".") if node.module else []
        if node.level == 0:
            return self._below(module)
        folders = file.split("/")[:-1]
        return folders[: len(folders) - node.level + 1] + module

    def _below(self, module: list[str]) -> list[str] | None:
        """The path below the root of a module by its whole name; None where not ours."""
        return module[1:] if module[0] == NAME else None

    def _file(self, parts: list[str]) -> str | None:
        package = "/".join([*parts, "__init__.py"])
        module = "/".join(parts) + ".py"
        return next((file for file in (module, package) if file in self.trees), None)

    # -- classes ---------------------------------------------------------------------------------

    @cached_property
    def classes(self) -> dict[tuple[str, str], Class]:
        found = {}
        for file, tree in self.trees.items():
            for node in ast.walk(tree):
                if isinstance(node, ast.ClassDef):
                    bases = (self._class_of(file, base) for base in node.bases)
                    ours = tuple(base for base in bases if base is not None)
                    found[file, node.name] = Class(file, node.name, ours)
        return found

    @cached_property
    def _defined(self) -> dict[str, set[str]]:
        return {
            file: {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
            for file, tree in self.trees.items()
        }

    @cached_property
    def _known_as(self) -> dict[str, dict[str, tuple[str, str]]]:
        return {
            file: {here: (target, there) for target, there, here in self._imported(file)}
            for file in self.trees
        }

    def _class_of(self, file: str, base: ast.expr) -> tuple[str, str] | None:
        if isinstance(base, ast.Subscript):
            return self._class_of(file, base.value)
        if isinstance(base, ast.Attribute):
            module, there = self._known_as[file].get(ast.unparse(base.value), ("", ""))
            return (module, base.attr) if module and not there else None
        if not isinstance(base, ast.Name):
            return None
        if base.id in self._defined[file]:
            return file, base.id
        return self._known_as[file].get(base.id)

    def line_of(self, key: tuple[str, str]) -> list[str]:
        """The longest chain of our own classes that ends in this one, its root first."""
        made = self.classes.get(key)
        if made is None:  # a name that is no class of ours
            return []
        above = max((self.line_of(base) for base in made.bases), key=len, default=[])
        return [*above, made.name]

    @property
    def duplicates(self) -> dict[str, list[str]]:
        """The names of classes that exist in two or more modules, with these modules."""
        count = Counter(name for _, name in self.classes)
        return {
            name: sorted(file for file, other in self.classes if other == name)
            for name in sorted(count)
            if count[name] > 1
        }

    # -- functions -------------------------------------------------------------------------------

    @cached_property
    def functions(self) -> list[Function]:
        return [
            _function(file, node)
            for file, tree in self.trees.items()
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        ]


class Outside(Package):
    """The files of some folders outside the package, as of benchmarks and tests."""

    def __init__(self, root: Path, *folders: str) -> None:
        self._read(root, folders, [])

    def _below(self, module: list[str]) -> list[str]:
        return module[1:] if module[0] == NAME else module


def of_benchmarks(root: Path) -> dict[str, list[tuple[str, ...]]]:
    """The circles among files of benchmarks and testkit; tests that import a file of benchmarks."""
    tests = Outside(root, "tests", "benchmarks").graph
    return {
        "benchmarks.circles": Outside(root, "benchmarks", "testkit").circles,
        "tests_importing_benchmarks": [
            (file, target)
            for file, targets in tests.items()
            for target in sorted(targets)
            if file.startswith("tests/") and target.startswith("benchmarks/")
        ],
    }


def _function(file: str, node: ast.FunctionDef | ast.AsyncFunctionDef) -> Function:
    first = node.body[0]
    described = ast.get_docstring(node) is not None
    taken = node.args
    arguments = [*taken.posonlyargs, *taken.args, *taken.kwonlyargs, taken.vararg, taken.kwarg]
    return Function(
        file,
        node.name,
        node.end_lineno - node.lineno + 1,
        first.end_lineno - first.lineno + 1 if described else 0,
        sum(argument is not None for argument in arguments),
        not any(isinstance(part, ACTS) for held in node.body for part in ast.walk(held)),
    )
