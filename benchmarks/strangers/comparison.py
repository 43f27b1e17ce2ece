"""Other people's scripts with Optuna in them, unchanged: plainly, and by ``penstock run``.

    python -m benchmarks.strangers --json FILE [--quick] [--only NAME ...] [--folder DIR]

The scripts lie in ``shared/strangers`` next to the repository or above it; where they are absent
that is said and nothing is run. Each is run twice, each time in a copy of their folder: by Python
alone, then by ``penstock run`` on one private installation of two slots, both with the Python of
``.venv-strangers`` (``make bench-strangers``). A script whose libraries are not there, or which
fails or takes too long by Python alone, is skipped, with the reason.

A script is *unchanged* if its exit code, the files that it makes, the form of its last lines, the
number of its trials and what its case (``cases``) asks of its output are as in Python.
It was *told at once* if it is not, and a sentence before its first trial, or in place of it, names
what cannot be the same. What is neither is *silently different* if the exit code is 0, and *fails*
otherwise. ``stops_late.max`` is by how many trials a callback's stop came too late.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from penstock.app.host.settings import Settings
from penstock.app.server.services import services

from benchmarks.lib.studies import installation
from benchmarks.strangers.cases import CASES, Case
from testkit.results import Run

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".venv-strangers" / "bin" / "python"
#: Seconds that a script may take by Python alone.
LIMIT = 170.0
#: Seconds under Penstock: a multiple of the plain ones, and the start of services and trainers.
TIMES, START = 3.0, 60.0
DEVICES = "cpu:2x1"
#: Runs the code cells of a notebook.
CELLS = """import json, sys
for cell in json.load(open(sys.argv[1]))["cells"]:
    exec("".join(cell["source"]))
"""
#: Files that are not compared: caches, and what libraries keep of their own.
_IGNORED = re.compile(r"__pycache__|catboost_info|-(journal|wal|shm)$|\.pyc$")
_NUMBER = re.compile(r"-?\d+(\.\d+)?(e[+-]?\d+)?|\bnan\b|\binf\b")
_FIRST_TRIAL = re.compile(r"^(trial \d+ |.*: (running|complete), \d+)")


@dataclass(frozen=True)
class Ended:
    """A run's end: exit code, None past the limit; wall seconds; output; files it made."""

    code: int | None
    seconds: float
    out: str
    err: str
    files: list[str]

    @property
    def last_line(self) -> str:
        lines = [line.strip() for line in (self.out + self.err).splitlines() if line.strip()]
        return lines[-1][:300] if lines else ""


@dataclass
class Verdict:
    """Outcome of one script."""

    verdict: str
    plain_s: float = 0.0
    seconds: float | None = None
    #: Differences, or the reason why it was skipped.
    why: list[str] = field(default_factory=list)
    #: The sentence that told of it at once.
    told: str = ""
    late: int | None = None
    load: float = 0.0


def scripts_folder(given: Path | None) -> Path | None:
    """The folder with the scripts: ``given``, or next to the repository or above it."""
    beside = [each / "shared" / "strangers" for each in ROOT.parents]
    places = [given] if given is not None else beside
    return next((each for each in places if each.is_dir()), None)


def lacking(case: Case) -> str:
    """The first module that the case needs and that is not there; empty if none is."""
    for module in case.needs:
        command = [PYTHON, "-c", f"import {module}"]
        looked = subprocess.run(command, check=False, capture_output=True, text=True)
        if looked.returncode:
            return f"{module}: {looked.stderr.strip().splitlines()[-1]}"
    return ""


def run(case: Case, scripts: Path, limit: float, env: dict[str, str], *before: str) -> Ended:
    """Run the case in a copy of the scripts; past ``limit`` seconds it is killed."""
    with tempfile.TemporaryDirectory() as made, tempfile.TemporaryFile() as errors:
        folder = Path(made) / "strangers"
        shutil.copytree(scripts, folder, ignore=shutil.ignore_patterns("__pycache__"))
        if "nb.ipynb" in case.command:
            subprocess.run([PYTHON, "notebook.py"], cwd=folder, check=True)
        present, began = set(_files(folder)), time.monotonic()
        with tempfile.TemporaryFile() as output:
            started = subprocess.Popen(
                [PYTHON, *before, *_arguments(case, plain=not before)],
                cwd=folder / case.folder,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                start_new_session=True,
            )
            try:
                code: int | None = started.wait(limit)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(started.pid, signal.SIGKILL)
                started.wait()
            seconds = time.monotonic() - began
            files = sorted({_NUMBER.sub("#", each) for each in set(_files(folder)) - present})
            texts = []
            for pipe in (output, errors):
                pipe.seek(0)
                texts.append(pipe.read().decode(errors="replace"))
    return Ended(code, seconds, *texts, files)


def _arguments(case: Case, *, plain: bool) -> tuple[str, ...]:
    """Return Python's arguments; for a notebook by Python alone, its cells one after another."""
    if plain and case.command[0].endswith(".ipynb"):
        return ("-c", CELLS, *case.command)
    return case.command


def _files(folder: Path) -> Iterator[str]:
    for path in folder.rglob("*"):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and not _IGNORED.search(name):
            yield name


def differences(case: Case, plain: Ended, ours: Ended) -> Iterator[str]:
    """Yield the differences of ``ours`` from ``plain``."""
    if ours.code != plain.code:
        yield f"exit code {ours.code}, plainly {plain.code}: {ours.last_line}"
    if ours.files != plain.files:
        only = set(plain.files) ^ set(ours.files)
        yield f"files on one side only: {', '.join(sorted(only)[:5])}"
    lines = [_form(line) for line in ours.out.splitlines()]
    for line in [li for li in plain.out.splitlines() if li.strip()][-case.tail :][: case.tail]:
        if _form(line) not in lines:
            yield f"not printed: {line.strip()[:120]}"
    if case.holds(plain.out) and not case.holds(ours.out):
        yield "its own output does not hold together"
    if case.trials and _found(case.trials, plain.out) != _found(case.trials, ours.out):
        counts = _found(case.trials, plain.out), _found(case.trials, ours.out)
        yield f"{counts[1]} trials, plainly {counts[0]}"


def _form(line: str) -> str:
    """A line without its numbers and what follows from the order of draws."""
    return " ".join(_NUMBER.sub("#", line).replace("[", " ").replace("]", " ").split())


def _found(pattern: str, text: str) -> str | None:
    found = re.search(pattern, text, re.MULTILINE)
    return found[1] if found else None


def told(case: Case, plain: Ended, ours: Ended) -> str:
    """The sentence before the first trial that names what cannot be the same; or empty."""
    if not case.about:
        return ""
    known = {_form(line) for line in plain.err.splitlines()}
    for line in ours.err.splitlines():
        if _FIRST_TRIAL.match(line):
            break
        if re.search(case.about, line) and _form(line) not in known:
            return line.strip()[:300]
    return ""


def judged(case: Case, scripts: Path, settings: Settings, limit: float) -> Verdict:
    """Run a case on both sides and compare."""
    load = os.getloadavg()[0]
    if missing := lacking(case):
        return Verdict("skipped", why=[missing], load=load)
    env = os.environ | {"OMP_NUM_THREADS": "1", "MPLBACKEND": "Agg", "PYTHONWARNINGS": "ignore"}
    env |= {"PYTHONUNBUFFERED": "1"}
    plain = run(case, scripts, limit, env)
    if plain.code is None:
        why = f"still at work after {limit:.0f} s by Python alone"
        return Verdict("skipped", plain.seconds, why=[why], load=load)
    if (plain.code != 0) != case.fails:
        why = f"exit code {plain.code} by Python alone: {plain.last_line}"
        return Verdict("skipped", plain.seconds, why=[why], load=load)
    allowed = START + TIMES * plain.seconds
    ours = run(case, scripts, allowed, env | settings.environment(), "-m", "penstock", "run")
    if ours.code is None:
        services.take_down(settings)  # with what the script left at work
    why = list(differences(case, plain, ours))
    said = told(case, plain, ours)
    verdict = "unchanged" if not why else "told" if said else "different" if ours.code == 0 else ""
    late = None
    if case.wanted is not None and ours.code == 0:
        has = int(_found(r"trials (\d+)", ours.out) or 0)
        late = max(0, has - case.wanted(plain.out, ours.out))
    return Verdict(verdict or "fails", plain.seconds, ours.seconds, why, said, late, load)


def figures_of(found: dict[str, Verdict]) -> dict[str, Any]:
    """The sums, over the scripts that run by Python alone."""
    tried = [each for each in found.values() if each.verdict != "skipped"]
    count = {name: sum(each.verdict == name for each in tried) for name in ("unchanged", "told")}
    late = [each.late for each in tried if each.late is not None]
    n = max(1, len(tried))
    return {
        "scripts": len(tried),
        "unchanged": count["unchanged"],
        "told_at_once": count["told"],
        "silently_different": sum(each.verdict == "different" for each in tried),
        "failing": sum(each.verdict == "fails" for each in tried),
        "unchanged_or_told_at_once": sum(count.values()) / n,
        "unchanged_share": count["unchanged"] / n,
        "stops_late.max": max(late, default=0),
        "of_script": {name: asdict(each) for name, each in found.items()},
    }


def line(name: str, found: Verdict) -> str:
    """Return the line to print for one script."""
    ours = "" if found.seconds is None else f"{found.seconds:6.1f} s"
    late = "" if found.late is None else f" {found.late} late"
    words = "; ".join([*found.why, *([f"told: {found.told}"] if found.told else [])])
    head = f"{found.verdict:10}{name:24}plainly {found.plain_s:6.1f} s {ours:9}{late}"
    return f"{head} {words[:400]} (load {found.load:.1f})"


def main() -> None:
    """Print a line a script, write the figures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="a few small ones")
    parser.add_argument("--only", nargs="+", metavar="NAME", default=[])
    parser.add_argument("--folder", type=Path, help="where the scripts are")
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds by Python alone")
    options = parser.parse_args()
    scripts = scripts_folder(options.folder)
    if scripts is None:
        print("strangers: skipped, there is no shared/strangers: name it by --folder")
        return
    if not PYTHON.exists():
        print("strangers: skipped, there is no .venv-strangers: make bench-strangers")
        return
    if unknown := set(options.only) - {case.name for case in CASES}:
        parser.error(f"no such script: {', '.join(sorted(unknown))}")
    chosen = [case for case in CASES if case.quick or not options.quick]
    chosen = [case for case in chosen if case.name in options.only or not options.only]
    baseline = "each script by Python alone"
    this_run = Run("strangers", baseline=baseline, whole=not options.only)
    found: dict[str, Verdict] = {}
    with installation(DEVICES) as settings:
        for case in chosen:
            found[case.name] = judged(case, scripts, settings, options.limit)
            print(line(case.name, found[case.name]), flush=True)
            this_run.write(options.json, figures_of(found))  # so far, if it is cut off
    for key, value in figures_of(found).items():
        if key != "of_script":
            print(f"{key:28} {value}")


if __name__ == "__main__":
    main()
