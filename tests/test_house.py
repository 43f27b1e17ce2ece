"""The rules of the house that no other tool checks: face, packaging, rooms, circles, processes."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from itertools import chain
from pathlib import Path

import penstock
import pytest
from penstock.app import extensions
from penstock.app.extensions import BY_NAME, EXTENSIONS, PUBLIC

from testkit.package import FLOORS, Package, of_benchmarks

ROOT = Path(__file__).parent.parent
RULES = (ROOT / "CONTRIBUTING.md").read_text()
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())

#: Modules that the pure core may import: no file, clock, network, process or chance.
PURE = {
    "__future__",
    "abc",
    "annotated_types",  # bounds of numbers, as values
    "bisect",
    "collections",
    "contextlib",
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
    "re",
    "shlex",  # a command is a text in words
    "statistics",
    "typing",
}

#: Files that read a variable of the environment by its name, and the reasons. Every file may hand
#: the whole environment on to a child process.
READERS_OF_THE_ENVIRONMENT = {
    "extensions/exports/mlflow.py": "MLflow's time limits, for as long as we ask it",
    "app/node/worker/keeper.py": "what the node agent tells the keeper that it starts",
    "app/host/locks.py": "the lock that a service inherits from who started it",
    "app/host/devices.py": "which GPUs the user left visible",
    "app/host/settings.py": "the user's settings",
    "extensions/celery_apps/spec.py": "which Django project the script is of",
    "extensions/celery_apps/send.py": "the same, and that nothing is to be started",
    "app/client/study/handle.py": "whether this is a trainer, in which no study may be started",
    "app/node/launching/process.py": "what whoever starts it tells it to import ahead",
    "app/node/worker/worker.py": "what the node agent tells the worker that it starts",
    "extensions/system_tuning/measuring/profiles.py": "which GPU the trainer was given",
    "tasks/system/onednn.py": "the limit that oneDNN reads, too",
    "tasks/system/system.py": "how many threads the slot was given",
    "tasks/system/catboost_threads.py": "how many threads the slot was given, or user code took",
    "tasks/trainer/__main__.py": "what the worker tells the trainer that it starts",
    "tasks/trainer/fork_server.py": "what the launcher process tells the fork server",
}

#: Libraries that importing a process's first module must not load, to save memory and time.
LIGHT = {
    "penstock": {"celery", "optuna", "pandas", "pydantic", "redis", "rich", "sqlalchemy", "torch"},
    "penstock.scheduler.engine.engine": {
        "celery",
        "optuna",
        "pydantic",
        "redis",
        "sqlalchemy",
        "torch",
    },
    "penstock.app.node.worker.celery": {
        "optuna",
        "pandas",
        "plotly",
        "sklearn",
        "sqlalchemy",
        "torch",
    },
    "penstock.app.node.worker.worker": {
        "optuna",
        "pandas",
        "plotly",
        "sklearn",
        "sqlalchemy",
        "torch",
    },
    "penstock.extensions.nas.names": {
        "celery",
        "optuna",
        "pydantic",
        "redis",
        "sqlalchemy",
        "torch",
    },
    "penstock.app.cli.main": {"optuna", "pandas", "plotly", "sklearn", "torch"},
    "penstock.tasks.trainer.__main__": {
        "celery",
        "kombu",
        "pandas",
        "plotly",
        "redis",
        "sqlalchemy",
    },
}


def modules(*floors):
    return sorted(path for floor in floors for path in (ROOT / floor).rglob("*.py"))


def name_of(path):
    return path.relative_to(ROOT).as_posix()


@pytest.fixture(scope="module")
def package():
    return Package(ROOT)


def from_outside(tree):
    """The libraries that a file imports, the standard ones too; its relative imports are ours."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module.partition(".")[0]


def written(folder, files):
    """Write a package of these files and its top modules; return it."""
    for name, text in {"__init__.py": "", "__main__.py": "", **files}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return Package(folder)


def typed(file):
    """Return the names that a file has for type checkers, and where they come from."""
    return {
        alias.asname or alias.name: f"{node.module}:{alias.name}"
        for node in ast.walk(ast.parse((ROOT / file).read_text()))
        if isinstance(node, ast.ImportFrom) and node.level == 1
        for alias in node.names
    }


def listed(file):
    """Return the names in the ``__all__`` that a file has for type checkers."""
    [names] = [
        ast.literal_eval(node.value)
        for node in ast.walk(ast.parse((ROOT / file).read_text()))
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    ]
    return sorted(names)


def test_the_public_face_is_what_it_says_to_people_and_to_type_checkers():
    # `celery` is there for `celery -A penstock`, not for `from penstock import *`.
    lazy = {name: where for name, where in penstock._LAZY.items() if name != "celery"}
    own = {
        name: where for name, where in typed("__init__.py").items() if name not in ("*", "public")
    }
    assert own == lazy
    assert listed("__init__.py") == sorted(lazy)
    assert sorted(penstock.__all__) == sorted({*lazy, *extensions.public()})


def test_type_checkers_find_the_public_names_of_extensions():
    for names, file in ((PUBLIC, "public.pyi"), (BY_NAME, "public_by_name.pyi")):
        where = {
            name: at if ":" in at else ":".join(at.rsplit(".", 1)) for name, at in names.items()
        }
        assert typed(f"extensions/{file}") == where
    assert listed("extensions/public.pyi") == sorted(PUBLIC)


def owner(name):
    """Return the extension that a public name is of, or nothing."""
    return [PUBLIC[name].partition(".")[0]] if name in PUBLIC else []


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.extension(*owner(name)))
        for name in sorted({*penstock._LAZY, *PUBLIC} - {"celery"})
    ],
)
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
            shipped = any(
                path.match(str(Path(*package.split(".")[1:]) / glob))
                for package, of_package in globs.items()
                for glob in of_package
            )
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


def test_celery_is_imported_where_the_rules_say():
    imported = re.compile(
        r"^\s*(import|from) (celery|kombu)\b|import_module\(.(celery|kombu)\b", re.M
    )
    importers = {name_of(path) for path in modules(*FLOORS) if imported.search(path.read_text())}
    rule = next(each for each in RULES.split("\n- ") if "import Celery" in each)
    named = {*re.findall(r"`(.+?)`", rule.partition("import Celery")[0])}
    # An extension may be removed.
    assert importers == {each for each in named if Path(ROOT / each).parent.is_dir()}


def test_the_core_and_the_values_it_stands_on_do_no_input_or_output(package):
    core = {file for file in package.trees if file.startswith("scheduler/")}
    ground = set().union(*(package.graph[file] for file in core)) - core
    assert any(file.endswith("/errors.py") for file in ground)
    for file in sorted(core | ground):
        outside = set(from_outside(package.trees[file]))
        assert outside <= PURE, f"{file} imports {sorted(outside - PURE)}"
        calls = {
            node.func.id
            for node in ast.walk(package.trees[file])
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        }
        assert calls.isdisjoint({"open", "print", "input", "hash", "id"}), file


def test_no_files_import_each_other_in_a_circle(package):
    assert package.circles == [], "imports in functions and for types count too"


def test_benchmarks_have_no_circles_and_no_test_imports_one():
    assert {name: where for name, where in of_benchmarks(ROOT).items() if where} == {}


def test_the_init_of_a_room_is_one_docstring(package):
    for room in package.rooms:
        tree = package.trees[f"{room}/__init__.py"]
        assert ast.get_docstring(tree), f"{room}/__init__.py says what the room holds"
        assert len(tree.body) == 1, f"{room}/__init__.py is more than a docstring"


def test_the_graph_has_imports_of_every_kind_at_every_depth(tmp_path):
    package = written(
        tmp_path,
        {
            "app/__init__.py": "",
            "app/a.py": "import os\nfrom .room import deep, other as another",
            "app/room/__init__.py": "",
            "app/room/deep.py": "def f():\n    from ...tasks.b import g",
            "app/room/other.py": "from ... import tasks\nfrom . import nothing",
            "tasks/__init__.py": "",
            "tasks/b.py": "if TYPE_CHECKING:\n    import penstock.tasks.c as c",
            "tasks/c.py": "from penstock.app import a",
        },
    )
    assert package.graph["app/a.py"] == {"app/room/deep.py", "app/room/other.py"}
    assert package.graph["app/room/other.py"] == {"tasks/__init__.py", "app/room/__init__.py"}
    assert package.circles == [("app/a.py", "app/room/deep.py", "tasks/b.py", "tasks/c.py")]
    assert package.rooms["app/room"] == ["__init__.py", "deep.py", "other.py"]


def test_a_chain_of_classes_is_followed_over_files_and_other_names(tmp_path):
    package = written(
        tmp_path,
        {
            "app/a.py": "class A(dict): pass",
            "app/b.py": "from . import a\nclass B(a.A): pass\nclass A: pass",
            "app/c.py": "from .b import B as Base\nclass C(Base[int], Generic): pass",
        },
    )
    assert package.line_of(("app/c.py", "C")) == ["A", "B", "C"]
    assert package.duplicates == {"A": ["app/a.py", "app/b.py"]}


def test_a_declaration_is_told_from_code_and_a_docstring_is_counted_apart(tmp_path):
    code = "def g(*all):\n    '''Two\n    lines.'''\n    return 1 if all else 2"
    table = "def f(x, *, y=1):\n    h(x)\n    return k(y)"
    package = written(tmp_path, {"app/a.py": f"{table}\n{code}"})
    plain, acts = package.functions
    assert (plain.lines, plain.docstring, plain.arguments, plain.declares) == (3, 0, 2, True)
    assert (acts.lines, acts.docstring, acts.arguments, acts.declares) == (4, 2, 1, False)


@pytest.mark.parametrize(
    "module",
    [
        pytest.param(name, marks=pytest.mark.extension("nas")) if ".nas." in name else name
        for name in LIGHT
    ],
)
def test_a_process_loads_only_what_it_works_with(module):
    program = f"import sys, {module}; print(*sys.modules)"
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    loaded = {name.partition(".")[0] for name in ran.stdout.split()}
    assert loaded & LIGHT[module] == set()


def test_tests_have_the_path_of_a_room():
    """A folder without a test of its own is a wing of others."""
    tests = ROOT / "tests"
    folders = {path.parent for floor in FLOORS for path in (tests / floor).rglob("test_*.py")}
    rooms = {folder.relative_to(tests) for folder in folders}
    assert rooms
    assert [str(room) for room in rooms if not (ROOT / room / "__init__.py").is_file()] == []


def test_tests_name_extensions_that_are_in_the_list():
    """A name that no extension has would skip them everywhere."""
    marks = re.compile(r"mark\.extension\(([^*\n]*?)\)")
    roots = (ROOT / "tests", ROOT / "benchmarks")
    files = [path for root in roots for path in root.rglob("*.py") if path.name != "conftest.py"]
    named = {
        name
        for path in files
        for names in marks.findall(path.read_text())
        for name in re.findall(r'"(\w+)"', names)
    }
    named |= {path.name for path in (ROOT / "tests" / "extensions").iterdir() if path.is_dir()}
    assert named - {"__pycache__"} <= set(EXTENSIONS)
