"""Optuna's own tests on Penstock's storage: how many pass, folder by folder.

    python -m benchmarks.optuna_check --json FILE [--their-storage sqlite] [FOLDER ...]

The tests are those of the installed version, from its source distribution, which pip downloads
once into ``build/``. What is put in place of Optuna's storages is said in ``plugin``. ``ours_``
counts the tests that asked for our storage; the others are about something else. What does not pass
is compared with ``docs/optuna-not-passed.txt``: a failure that is not listed there ends this with
exit code 1.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tarfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.optuna_check import CHOICES, MODE
from testkit.results import Run

ROOT = Path(__file__).parent.parent.parent
LIST = ROOT / "docs" / "optuna-not-passed.txt"
FOLDERS = ("storages", "study", "trial", "pruners", "samplers", "terminator")
#: Seconds that a folder's tests may take.
PATIENCE = 3600.0


def unpacked() -> Path:
    """The source distribution of the installed Optuna, without its package: that is installed."""
    name = f"optuna-{version('optuna')}"
    folder = ROOT / "build" / "optuna-check"
    if not (folder / name / "tests").is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        wanted = ["--no-deps", "--no-binary", "optuna", name.replace("-", "==")]
        pip = [sys.executable, "-m", "pip", "download", "-q", "--dest", str(folder), *wanted]
        subprocess.run(pip, check=True)
        with tarfile.open(folder / f"{name}.tar.gz") as archive:
            members = [
                member
                for member in archive.getmembers()
                if not member.name.startswith(f"{name}/optuna")
            ]
            archive.extractall(folder, members, filter="data")
    return folder / name


def run(at: Path, folder: str, storage: str) -> list[dict[str, Any]]:
    """The tests of one folder: a dictionary each, as the plugin writes them."""
    results = at / f"{folder}.{storage}.jsonl"
    results.unlink(missing_ok=True)
    options = ["-q", "--tb=line", "-n", "logical", "-p", "no:cacheprovider"]
    ours = ["-p", "benchmarks.optuna_check.plugin", "--their-storage", storage]
    argv = [sys.executable, "-m", "pytest", *options, *ours, "--results", str(results)]
    with (at / f"{folder}.{storage}.log").open("wb") as log:
        subprocess.run(
            [*argv, f"tests/{folder}_tests"],
            cwd=at,
            env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
            stdout=log,
            stderr=subprocess.STDOUT,
            timeout=PATIENCE,
            check=False,
        )
    if not results.exists():
        sys.exit(f"the tests of {folder} did not run: see {log.name}")
    return [json.loads(line) for line in results.read_text().splitlines()]


def counted(tests: list[dict[str, Any]]) -> dict[str, float]:
    """Passed, failed, skipped, total, and the share of what was not skipped; the same of ours."""
    figures: dict[str, float] = {}
    for name, chosen in ("", tests), ("ours_", [test for test in tests if test.get("ours")]):
        outcomes = [test["outcome"] for test in chosen]
        passed, failed = outcomes.count("passed"), outcomes.count("failed")
        figures |= {f"{name}passed": passed, f"{name}failed": failed, f"{name}total": len(chosen)}
        figures[f"{name}share"] = passed / (passed + failed) if passed + failed else 1.0
    return figures


def listed(text: str) -> dict[str, str]:
    """Test ids and why each does not pass: a line each, a tab between, ``#`` begins a comment."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return {name: why for name, _, why in (line.partition("\t") for line in lines)}


def compared(tests: list[dict[str, Any]], known: dict[str, str]) -> tuple[list[str], list[str]]:
    """Ids of the failures that are not listed, and of the listed tests that pass."""
    new = [test["id"] for test in tests if test["outcome"] == "failed" and test["id"] not in known]
    passes = {test["id"] for test in tests if test["outcome"] == "passed"}
    return new, [name for name in known if name in passes]


def main() -> None:
    """Print a line a folder, write the figures, say what is not as the list has it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folders", nargs="*", metavar="FOLDER", help=" ".join(FOLDERS))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--their-storage", choices=CHOICES, default=MODE)
    options = parser.parse_args()
    this_run = Run("optuna_check", baseline="Optuna's own tests on Optuna")
    at = unpacked()
    figures: dict[str, Any] = {"optuna": version("optuna"), "storage": options.their_storage}
    tests: list[dict[str, Any]] = []
    for folder in options.folders or FOLDERS:
        found = run(at, folder, options.their_storage)
        tests += found
        figures[folder] = counted(found)
        print(line(folder, figures[folder]), flush=True)
    figures["all"] = counted(tests)
    print(line("all", figures["all"]))
    new, passes = compared(tests, listed(LIST.read_text()))
    why = {test["id"]: test["why"] for test in tests}
    figures["not_listed"] = {name: why[name] for name in new}
    for name in new:
        print(f"failed and not listed: {name}: {why[name]}")
    for name in passes:
        print(f"passes, and is listed in {LIST.name}: {name}")
    this_run.write(options.json, figures)
    sys.exit(bool(new))


def line(name: str, found: dict[str, float]) -> str:
    """Return the line to print for a folder."""
    words = [
        f"{found[f'{of}passed']:5} passed, {found[f'{of}failed']:4} failed of"
        f" {found[f'{of}total']:5}, {found[f'{of}share']:7.2%}"
        for of in ("", "ours_")
    ]
    return f"{name:11} {words[0]}; on our storage {words[1]}"


if __name__ == "__main__":
    main()
