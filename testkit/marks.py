"""The mark of tests that need extensions: hooks of pytest that ``conftest.py`` imports."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from penstock.app.extensions import lacking

#: The folder of the extensions' tests.
OF_EXTENSIONS = Path(__file__).parents[1] / "tests" / "extensions"
EXTENSION_MARK = "pytest.mark.extension"


def pytest_ignore_collect(collection_path) -> bool | None:
    return None if all(map(is_there, needed_by(collection_path))) else True


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item) -> None:
    for mark in item.iter_markers("extension"):
        for name in mark.args:
            if not is_there(name):
                pytest.skip(f"the folder extensions/{name} is not there")


def extension_of(path: Path) -> str | None:
    """The extension whose tests are in a file or folder."""
    if not path.is_relative_to(OF_EXTENSIONS):
        return None
    return next(iter(path.relative_to(OF_EXTENSIONS).parts), None)


def needed_by(path: Path) -> Iterator[str]:
    """Yield the extensions that all tests of a file or folder need."""
    if (name := extension_of(path)) is not None:
        yield name
    if path.suffix != ".py" or EXTENSION_MARK not in (text := path.read_text()):
        return
    for statement in ast.parse(text).body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "pytestmark":
            for call in ast.walk(statement.value):
                if isinstance(call, ast.Call) and ast.unparse(call.func) == EXTENSION_MARK:
                    yield from (ast.literal_eval(each) for each in call.args)


def is_there(name: str) -> bool:
    return lacking(name) is None
