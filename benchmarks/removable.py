"""Removes each extension for real, from a copy of the project, and sees whether the rest works.

A copy has neither the extension's folder and the tests in ``tests/extensions`` nor its name in
the list (``app/extensions.py``) and in ``pyproject.toml``. In it run the tests of ``make quick``,
which are those of the core and of the other extensions, and the quickstart of ``make run``.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.app.extensions import EXTENSIONS

from benchmarks._checkouts import ROOT, Checkout, linked

#: It compares what tests are marked with and the list, which lacks a name in a copy.
KNOWS_THE_LIST = "tests/test_house.py::test_tests_name_extensions_that_are_in_the_list"


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
    kept = tuple(each for each in there if each != name)
    listed.write_text(text.replace(found[1], repr(kept)))
    project = root / "pyproject.toml"
    lines = project.read_text().splitlines(keepends=True)
    gone = re.compile(rf"penstock\.extensions\.{name}\b")
    project.write_text("".join(line for line in lines if not gone.search(line)))


def failures(name: str) -> list[str]:
    """Return what fails without an extension: tests by their names, and the quickstart."""
    with without(name) as copy:
        return [*_failed_tests(copy), *_failed_quickstart(copy)]


def _failed_tests(copy: Checkout) -> list[str]:
    makefile = (copy.root / "Makefile").read_text()
    quick = re.search(r"^QUICK := (.*)$", makefile, re.MULTILINE)
    assert quick is not None
    options = ["-q", "-n", "logical", "--dist", "loadfile", "-p", "no:cacheprovider"]
    options += ["-m", "not integration and not slow", "--deselect", KNOWS_THE_LIST, "-rfE"]
    ran = copy.output("-m", "pytest", *options, *quick[1].split())
    if ran.returncode == 0:
        return []
    failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", ran.stdout, re.MULTILINE)
    return failed or [f"tests: {(ran.stdout + ran.stderr)[-2000:]}"]


def _failed_quickstart(copy: Checkout) -> list[str]:
    with tempfile.TemporaryDirectory() as home:
        variables = {"PENSTOCK_HOME": home}
        try:
            ran = copy.output("-m", "penstock", "run", "examples/digits.py", variables=variables)
        finally:
            copy.output("-m", "penstock", "down", variables=variables)
    return [f"quickstart: {ran.stderr[-2000:]}"] if ran.returncode else []


def measure(names: Iterable[str]) -> dict[str, object]:
    """Return what fails without each of the extensions, and print a line for each."""
    failed = {}
    for name in names:
        failed[name] = failures(name)
        print(f"without {name}:", "; ".join(failed[name]) or "all works", flush=True)
    return {"removable.failed": sum(map(len, failed.values())), "removable": failed}


def main() -> None:
    """Print what fails; the exit status is 1 where anything does."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these extensions")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="the first extension alone")
    options = parser.parse_args()
    names = options.names or EXTENSIONS
    figures = measure(names[:1] if options.quick else names)
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2))
    sys.exit(bool(figures["removable.failed"]))


if __name__ == "__main__":
    main()
