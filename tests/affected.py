"""Run the tests that a change reaches, the nearest first, for two minutes at most.

Theory of operation. A test file is reached by a changed module where it imports it, itself or
through others; the number of imports between them is its distance. grimp knows the package's
imports; those of tests and benchmarks are read here and added. What is reached by a process counts,
too: a text that names a module of ours, as in ``-m penstock.tasks.trainer``, is an import of it.
Such tests are further away than those that import what changed, and so they run later.

A changed file that is no module reaches the files whose text names it.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import grimp
import penstock
import pytest
from penstock.app import extensions

ROOT = Path(__file__).parent.parent
#: Seconds.
LIMIT = 120.0
#: The exit status of a run that was stopped, as no test had failed.
OVER = 75
#: Files of the first run; each further one has twice as many. What is near is not held up by the
#: imports of what is far.
FIRST = 4
#: The folders whose modules are no part of the package.
OUTSIDE = ("tests", "benchmarks", "testkit")
#: The test that reads all modules as texts: it is near each of them.
HOUSE = "tests.test_house"
#: The module that each public name of ``import penstock`` comes from.
PUBLIC = {
    name: f"penstock.{where.partition(':')[0]}"
    for name, where in {
        **penstock._LAZY,
        **{name: f"extensions.{where}" for name, where in extensions.NAMES.items()},
    }.items()
}


def name_of(path: Path) -> str:
    """The module of a Python file, by its path in the repository."""
    parts = path.with_suffix("").parts
    parts = parts[:-1] if parts[-1] == "__init__" else parts
    return ".".join(parts if {*parts[:1]} & {*OUTSIDE} else ("penstock", *parts))


class Reach:
    """The imports among package, benchmarks and tests of the checkout at ``root``."""

    def __init__(self, root: Path, graph: grimp.ImportGraph) -> None:
        """``graph`` is the package's, to which the others' modules are added."""
        self._graph = graph
        others = [path for folder in OUTSIDE for path in (root / folder).rglob("*.py")]
        self._files = {name_of(path.relative_to(root)): path for path in others}
        for module in self._files:
            graph.add_module(module)
        for module, path in self._files.items():
            for imported in {*self._imported(module, path.read_text())} - {module}:
                graph.add_import(importer=module, imported=imported)
        for module in [each for each in graph.modules if each not in self._files]:
            path = root.joinpath(*module.split(".")[1:])
            path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
            for started in {*self._started(path.read_text())} - {module}:
                graph.add_import(importer=module, imported=started)

    def _imported(self, module: str, text: str) -> Iterator[str]:
        """The modules of ours that a file of tests or benchmarks imports, starts or patches."""
        yield from self._started(text)
        # Fixtures of a folder serve all files in it and below.
        parts = module.split(".")
        for depth in range(1, len(parts)):
            yield from self._known(".".join([*parts[:depth], "conftest"]))
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield from self._known(alias.name)
            elif isinstance(node, ast.ImportFrom):
                base = ".".join(filter(None, [*parts[: -node.level or None], node.module or ""]))
                base = base if node.level else node.module or ""
                for alias in node.names:
                    if base == "penstock" and alias.name in PUBLIC:
                        yield PUBLIC[alias.name]
                    else:
                        yield from self._known(f"{base}.{alias.name}")

    def _started(self, text: str) -> Iterator[str]:
        """The modules that strings of a file name, and what ``-m`` runs of them."""
        if re.search(r"""["']-m["'], ["']penstock["']""", text):
            yield "penstock.__main__"
        for name in re.findall(r"""["']((?:penstock|benchmarks|testkit)(?:\.\w+)+)["']""", text):
            yield from self._known(name)
            yield from self._known(f"{name}.__main__")

    def _known(self, name: str) -> Iterator[str]:
        """The longest beginning of a dotted name that is a module; the package's face is none."""
        name = re.sub(r"^penstock\.(?=benchmarks\.|testkit\.|tests\.)", "", name)
        for parts in (name.split("."), ["tests", *name.split(".")]):
            for end in range(len(parts), 0, -1):
                found = ".".join(parts[:end])
                if found in self._graph.modules and found not in ("penstock", "tests"):
                    yield found
                    return

    def distances(self, changed: Iterable[Path]) -> dict[Path, int]:
        """Return the number of imports from each test file that is reached to the changed files."""
        todo = [module for path in changed for module in self._beginnings(path)]
        found = dict.fromkeys(todo, 0)
        if HOUSE not in found and any(module not in self._files for module in todo):
            found[HOUSE] = 1
        for module in todo:  # it grows
            if module == "penstock":  # the face imports all that is public
                continue
            for importer in sorted(self._graph.find_modules_that_directly_import(module)):
                if importer not in found:
                    found[importer] = found[module] + 1
                    todo.append(importer)
        tests = {self._files[module]: n for module, n in found.items() if module in self._files}
        return {path: n for path, n in tests.items() if path.name.startswith("test_")}

    def _beginnings(self, path: Path) -> list[str]:
        if path.suffix == ".py" and name_of(path) in self._graph.modules:
            return [name_of(path)]
        named = re.compile(rf"\b{re.escape(path.name)}\b")
        return [name for name, file in self._files.items() if named.search(file.read_text())]


def git(*arguments: str) -> list[str]:
    done = subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout.splitlines()


def changed_since(commit: str | None) -> tuple[str, list[Path]]:
    """The commit, and the files that differ from it, those included that git does not have yet.

    Without a commit: where HEAD left main or what it is pushed to; the last commit's where
    that is HEAD itself and nothing is changed.
    """
    new = git("ls-files", "--others", "--exclude-standard")
    bases = [git("merge-base", "HEAD", each) for each in ("@{upstream}", "main", "HEAD~1")]
    since = commit or next(base[0] for base in [*bases, ["HEAD"]] if base)
    if commit is None and not (new or git("diff", "--name-only", since)):
        since = "HEAD~1"
    return since, [Path(each) for each in git("diff", "--name-only", since) + new]


class Until:
    """A pytest plugin that stops at a moment of the monotonic clock, and says what it left."""

    def __init__(self, moment: float) -> None:
        self._moment = moment
        self._left: Counter[str] = Counter()
        self._session = None

    def pytest_collection_finish(self, session) -> None:
        self._session = session
        self._left.update(item.nodeid.partition("::")[0] for item in session.items)

    def pytest_runtest_logfinish(self, nodeid) -> None:
        self._left[nodeid.partition("::")[0]] -= 1
        if time.monotonic() > self._moment:
            self._session.shouldstop = "the time is over"

    def status(self, status: int) -> int:
        """The exit status, which is ``OVER`` where the time was over before the tests were."""
        left = +self._left
        if self._session is None or self._session.testsfailed or not left:
            return status if self._session is None or not self._session.testsfailed else 1
        print("the two minutes are over; left:")
        print(*(f"  {file}: {count} tests" for file, count in left.items()), sep="\n")
        return OVER


def run(files: list[str], moment: float) -> int:
    """Run these files in a process of their own, until that moment; return its exit status."""
    return subprocess.run(
        [sys.executable, __file__, "--until", str(moment), *files], cwd=ROOT, check=False
    ).returncode


def main(arguments: list[str]) -> int:
    """Run what is affected; return 1 where a test fails, which ends it, too."""
    if arguments[:1] == ["--until"]:
        until = Until(float(arguments[1]))
        options = ["-q", "-m", "not slow", "--no-header"]
        return until.status(int(pytest.main([*options, *arguments[2:]], plugins=[until])))
    moment = time.monotonic() + LIMIT
    since, changed = changed_since(arguments[0] if arguments else None)
    reach = Reach(ROOT, grimp.build_graph("penstock"))
    distances = reach.distances(changed)
    # At one distance what starts services comes last.
    order = sorted(distances, key=lambda each: (distances[each], "integration" in each.parts, each))
    files = [path.relative_to(ROOT).as_posix() for path in order]
    print(f"{len(changed)} files differ from {since[:12]}; they reach {len(files)} test files")
    status, at, size = 0, 0, FIRST
    while at < len(files) and time.monotonic() < moment and status == 0:
        status = run(files[at : at + size], moment)
        status = 0 if status == pytest.ExitCode.NO_TESTS_COLLECTED else status
        at, size = at + size, 2 * size
    if left := files[at:]:
        print(f"not begun, from the nearest on, {len(left)} files:")
        print(*(f"  {file}" for file in left), sep="\n")
    return 0 if status == OVER else status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
