"""The rules of the house that no other tool checks: face, packaging, environment, processes."""

from __future__ import annotations

import ast
import fnmatch
import re
import subprocess
import sys
import tomllib
from itertools import chain
from pathlib import Path

import penstock
import pytest

ROOT = Path(__file__).parent.parent
FLOORS = ("app", "profiling", "scheduler", "tasks")
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())

#: What the pure core may import: values and arithmetic. No file, clock, network, process or chance.
PURE = {
    "__future__",
    "abc",
    "bisect",
    "collections",
    "dataclasses",
    "enum",
    "functools",
    "hashlib",
    "heapq",
    "itertools",
    "json",  # distributions are texts
    "math",
    "numpy",
    "operator",
    "statistics",
    "typing",
}

#: Who reads a variable of the environment by its name, and what for. Handing the whole environment
#: on to a child process is everyone's right.
READERS_OF_THE_ENVIRONMENT = {
    "app/mlflow.py": "MLflow's time limits, for as long as we ask it",
    "app/keeper.py": "what the node agent tells the keeper that it starts",
    "app/locks.py": "the lock that a service inherits from who started it",
    "app/machine.py": "which GPUs the user left visible",
    "app/settings.py": "the user's settings",
    "app/handle.py": "whether this is a trainer, in which no study may be started",
    "app/worker.py": "what the node agent tells the worker that it starts",
    "tasks/exact.py": "how many threads the slot was given",
    "tasks/profiled.py": "which GPUs the slot was given",
    "tasks/system.py": "how many threads the slot was given",
    "tasks/trainer.py": "what the worker tells the trainer that it starts",
}

#: What a process must not have loaded once its first module is imported: its memory, and its start.
LIGHT = {
    "penstock": {"celery", "optuna", "pandas", "pydantic", "redis", "rich", "sqlalchemy", "torch"},
    "penstock.scheduler.engine": {"celery", "optuna", "pydantic", "redis", "sqlalchemy", "torch"},
    "penstock.app.celery": {"optuna", "pandas", "plotly", "sklearn", "sqlalchemy", "torch"},
    "penstock.app.worker": {"optuna", "pandas", "plotly", "sklearn", "sqlalchemy", "torch"},
    "penstock.app.cli": {"optuna", "pandas", "plotly", "sklearn", "torch"},
    "penstock.tasks.trainer": {"celery", "kombu", "pandas", "plotly", "redis", "sqlalchemy"},
}


def modules(*floors):
    return sorted(path for floor in floors for path in (ROOT / floor).rglob("*.py"))


def name_of(path):
    return path.relative_to(ROOT).as_posix()


def imported(path):
    """(level, module) of every import in a file; level counts the dots of a relative one."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((0, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.level, node.module or ""


def test_the_public_face_is_what_it_says_to_people_and_to_type_checkers():
    # `celery` is there for `celery -A penstock`, not for `from penstock import *`.
    # The adapters need what is not installed everywhere, so they are not either.
    lazy = {name: where for name, where in penstock._LAZY.items() if name != "celery"}
    typed = {
        alias.asname or alias.name: f"{node.module}:{alias.name}"
        for node in ast.walk(ast.parse((ROOT / "__init__.py").read_text()))
        if isinstance(node, ast.ImportFrom) and node.level == 1
        for alias in node.names
    }
    assert sorted(penstock.__all__) == sorted(lazy)
    assert typed == lazy | penstock._ADAPTERS


@pytest.mark.parametrize("name", penstock.__all__)
def test_every_public_name_can_be_loaded_and_says_what_it_is(name):
    assert getattr(penstock, name).__doc__


def test_an_unknown_public_name_is_an_ordinary_error():
    with pytest.raises(AttributeError, match="no attribute 'create_stduy'"):
        _ = penstock.create_stduy


def test_the_packages_that_are_shipped_are_the_folders_that_hold_modules():
    folders = {path.parent.relative_to(ROOT) for path in modules(*FLOORS)}
    packages = {"penstock"} | {".".join(("penstock", *folder.parts)) for folder in folders}
    assert sorted(PYPROJECT["tool"]["setuptools"]["packages"]) == sorted(packages)
    assert all((ROOT / folder / "__init__.py").exists() for folder in folders)


def test_every_file_that_the_code_reads_is_shipped():
    globs = PYPROJECT["tool"]["setuptools"]["package-data"]
    for floor in FLOORS:
        for path in (ROOT / floor).rglob("*"):
            if path.is_dir() or path.suffix in {".py", ".pyc"}:
                continue
            package = ".".join(("penstock", *path.parent.relative_to(ROOT).parts))
            shipped = any(fnmatch.fnmatch(path.name, glob) for glob in globs.get(package, ()))
            assert shipped, f"{name_of(path)} is in no package-data of pyproject.toml"


def test_every_direct_dependency_is_pinned_for_ci():
    pins = set(re.findall(r"^([\w.-]+)==", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    wanted = [
        *PYPROJECT["project"]["dependencies"],
        *chain.from_iterable(PYPROJECT["project"]["optional-dependencies"].values()),
        *PYPROJECT["dependency-groups"]["dev"],
    ]
    names = {re.match(r"[\w.-]+", requirement).group().lower() for requirement in wanted}
    assert names - pins == set()


def test_the_environment_is_read_in_one_place():
    named = re.compile(r"os\.environ(\[|\.(get|pop|setdefault)\()|os\.getenv\(|\bgetenv\(")
    readers = {name_of(path) for path in modules(*FLOORS) if named.search(path.read_text())}
    assert readers - READERS_OF_THE_ENVIRONMENT.keys() == set()


def test_the_core_and_the_values_it_stands_on_do_no_input_or_output():
    ground = {
        ROOT / f"{module.replace('.', '/')}.py"
        for path in modules("scheduler")
        for level, module in imported(path)
        if level == 2
    }
    assert ROOT / "profiling/errors.py" in ground
    for path in [*modules("scheduler"), *ground]:
        outside = {module.partition(".")[0] for level, module in imported(path) if level == 0}
        assert outside <= PURE, f"{name_of(path)} imports {sorted(outside - PURE)}"
        calls = {
            node.func.id
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        }
        assert calls.isdisjoint({"open", "print", "input", "hash", "id"}), name_of(path)


@pytest.mark.parametrize("module", LIGHT)
def test_a_process_loads_only_what_it_works_with(module):
    program = f"import sys, {module}; print(*sys.modules)"
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    loaded = {name.partition(".")[0] for name in ran.stdout.split()}
    assert loaded & LIGHT[module] == set()
