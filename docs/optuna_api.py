"""Put the tables of Optuna's public API into docs/optuna-api.md: python docs/optuna_api.py.

They are made from the marks of ``tests/integration/test_optuna_api*.py``: each test names what it
covers and says what it shows of it.
"""

from __future__ import annotations

import importlib
import inspect
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import optuna

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "optuna-api.md"
TESTS = sorted((ROOT / "tests" / "integration").glob("test_optuna_api*.py"))
BEGIN = "<!-- api: filled in by `python docs/optuna_api.py` -->\n"
END = "<!-- /api -->"
#: Words for the results that a test may show of a name.
WORDS = ("same", "better", "differs", "not used", "not there", "not tried here")
MODULES = (
    *("study", "trial", "samplers", "pruners", "storages", "distributions", "search_space"),
    *("visualization", "importance", "artifacts", "terminator", "exceptions", "logging"),
)


def public_names() -> set[str]:
    """Return Optuna's functions, classes, members of studies and trials, and arguments."""
    found = {f"optuna.{name}" for name in optuna.__all__ if name not in MODULES}
    for short in MODULES:
        module = importlib.import_module(f"optuna.{short}")
        names = {*getattr(module, "__all__", ()), *_defined(module)}
        found |= {f"optuna.{short}.{name}" for name in names if name not in optuna.__all__}
    arguments = inspect.signature(optuna.Study.optimize).parameters
    given = [f"optimize({name})" for name in arguments if name != "self"]
    members = {
        # Those that an object is given are not in its class.
        "Study": [*dir(optuna.Study), *given, "study_name", "sampler", "pruner"],
        "Trial": [*dir(optuna.Trial), "study", "storage"],
        "FrozenTrial": [*dir(optuna.trial.FrozenTrial), *vars(optuna.create_trial(value=1.0))],
    }
    found |= {f"{kind}.{name}" for kind, names in members.items() for name in names}
    return {name for name in found if not name.rpartition(".")[2].startswith("_")}


def _defined(module: ModuleType) -> Iterator[str]:
    """Yield a module's own names: some have no ``__all__``, or one of constants alone."""
    for name, value in vars(module).items():
        if getattr(value, "__module__", None) == module.__name__:
            yield name


def marks() -> Iterator[tuple[str, list[Any]]]:
    """Yield the headings, with the marks below each."""
    sys.path.insert(0, str(ROOT / "tests"))
    for path in TESTS:
        for group in runpy.run_path(str(path)).values():
            if inspect.isclass(group) and group.__name__.startswith("Test"):
                tests = [each for each in vars(group).values() if hasattr(each, "pytestmark")]
                of = [mark for test in tests for mark in test.pytestmark if mark.name == "optuna"]
                yield inspect.getdoc(group) or "", of


def table() -> str:
    """Return all tables, each under its heading."""
    return "\n".join(
        f"### {heading}\n\n| Optuna | | |\n|---|---|---|\n" + "".join(map(_row, found))
        for heading, found in marks()
    )


def _row(mark: Any) -> str:
    return f"| {_names(mark.args)} | {mark.kwargs['shows']} | {mark.kwargs.get('said', '')} |\n"


def _names(names: tuple[str, ...]) -> str:
    """Return the names as code; a prefix that several have is said once."""
    before, shown = "", []
    for name in names:
        owner, _, last = name.rpartition(".")
        shown.append(f"`{last if owner and owner == before else name}`")
        before = owner
    return ", ".join(shown)


def main() -> None:
    """Write the tables into the page."""
    head, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, tail = rest.partition(END)
    PAGE.write_text(f"{head}{BEGIN}\n{table()}\n{END}{tail}")


if __name__ == "__main__":
    main()
