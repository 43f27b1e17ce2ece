"""Removes extensions for real, from a copy of the project, and sees whether the rest works.

A copy has neither the folders of the extensions and their tests in ``tests/extensions`` nor their
names in the list (``app/extensions.py``) and in ``pyproject.toml``. In each copy the quickstart of
``make run`` is run, and all tests are collected, which imports them. Those that run:

- once, in a copy without any extension, the tests of the core: of what is in none of their folders
  and is about no extension. What passes there, and in ``make test`` with all of them, needs none;
- in the copy without one extension, the tests of all others, and those of the core that are marked
  as needing one or several of them.

Left out are integration tests and slow ones, and tests of what names all extensions: documents,
the list itself, benchmarks.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from penstock.app.extensions import EXTENSIONS

from testkit.checkouts import ROOT, Checkout, linked
from testkit.results import Run

#: The run without any extension.
CORE = "all"
#: Paths that name all extensions, whether they are there or not.
NAMES_ALL = (
    "--ignore=tests/deploy",
    "--ignore=tests/test_site.py",
    "--ignore-glob=*/test_docs*.py",
    "--ignore=tests/test_affected.py",
    "--deselect=tests/test_house.py::test_tests_name_extensions_that_are_in_the_list",
    "--deselect=tests/tasks/trainer/test_add_a_feature.py::test_the_lines_of_the_page_belong_where_it_says",
)


@contextmanager
def without(*names: str) -> Iterator[Checkout]:
    """A copy of this checkout, with its uncommitted changes, from which extensions are removed."""
    listed = ["git", "-C", str(ROOT), "ls-files", "-z", "-c", "-o", "--exclude-standard"]
    files = subprocess.run(listed, check=True, capture_output=True, text=True).stdout.split("\0")
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "checkout"
        for file in filter(None, files):
            if (ROOT / file).is_file():
                (root / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / file, root / file)
        for name in names:
            _remove(root, name)
        with linked(root) as made:
            yield made


def _remove(root: Path, name: str) -> None:
    """Remove an extension from a copy. Raises ValueError if it is not in the list."""
    shutil.rmtree(root / "extensions" / name)
    shutil.rmtree(root / "tests" / "extensions" / name, ignore_errors=True)
    listed = root / "app" / "extensions.py"
    text = listed.read_text()
    found = re.search(r"^EXTENSIONS = (\(.*?\))$", text, re.MULTILINE | re.DOTALL)
    if found is None or name not in (there := ast.literal_eval(found[1])):
        raise ValueError(f"{name} is not in the list of {listed.name}")
    kept = "".join(f'    "{each}",\n' for each in there if each != name)
    listed.write_text(text.replace(found[1], f"(\n{kept})"))
    project = root / "pyproject.toml"
    lines = project.read_text().splitlines(keepends=True)
    gone = re.compile(rf"penstock\.extensions\.{name}\b")
    project.write_text("".join(line for line in lines if not gone.search(line)))


def failures(name: str) -> tuple[int, list[str]]:
    """Run what is run without an extension, or without all (``CORE``).

    Return how many tests passed, and what failed: tests by their names, and the quickstart.
    """
    # Without any extension, all tests that need one are skipped.
    removed, about = (EXTENSIONS, "") if name == CORE else ((name,), "extension and ")
    with without(*removed) as copy:
        passed, failed = _failed_tests(copy, about)
        return passed, [*failed, *_failed_quickstart(copy)]


def _failed_tests(copy: Checkout, about: str) -> tuple[int, list[str]]:
    """Run the tests of a copy that have such marks; as ``failures``."""
    options = ["-q", "-n", "logical", "--dist", "loadfile", "-p", "no:cacheprovider", "-rfE"]
    options += ["--continue-on-collection-errors", *NAMES_ALL]
    options += ["-m", f"{about}not integration and not slow"]
    ran = copy.output("-m", "pytest", *options, "tests")
    count = re.search(r"^.*?(\d+) passed", ran.stdout.rpartition("\n=")[2], re.MULTILINE)
    passed = int(count[1]) if count else 0
    if ran.returncode == 0:
        return passed, []
    failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", ran.stdout, re.MULTILINE)
    return passed, failed or [f"tests: {(ran.stdout + ran.stderr)[-2000:]}"]


def _failed_quickstart(copy: Checkout) -> list[str]:
    with tempfile.TemporaryDirectory() as home:
        variables = {"PENSTOCK_HOME": home}
        try:
            ran = copy.output("-m", "penstock", "run", "examples/digits.py", variables=variables)
        finally:
            copy.output("-m", "penstock", "down", variables=variables)
    return [f"quickstart: {ran.stderr[-2000:]}"] if ran.returncode else []


def measure(names: Iterable[str]) -> dict[str, Any]:
    """Return what fails without each of the extensions, and print a line for each."""
    found: dict[str, Any] = {}
    for name in names:
        began = time.monotonic()
        passed, failed = failures(name)
        seconds, load = time.monotonic() - began, os.getloadavg()[0]
        print(
            f"without {name}: {passed} tests passed in {seconds:.0f} s under a load of {load:.1f};",
            "; ".join(failed) or "all works",
            flush=True,
        )
        found[name] = {"passed": passed, "failed": failed, "seconds": seconds, "load": load}
    failed_in_all = sum(len(each["failed"]) for each in found.values())
    return {"removable.failed": failed_in_all, "removable": found}


def main() -> None:
    """Print what fails; the exit status is 1 where anything does."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"only these extensions; {CORE}: without any"
    )
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="the first extension alone")
    options = parser.parse_args()
    this_run = Run("removable", baseline="the project with all of its extensions")
    names = options.names or [*EXTENSIONS, CORE]
    figures = measure(names[:1] if options.quick else names)
    this_run.write(options.json, figures)
    sys.exit(bool(figures["removable.failed"]))


if __name__ == "__main__":
    main()
