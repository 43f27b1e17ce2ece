"""Writes the figures of a benchmark together with the run that gave them, and keeps the newest.

A benchmark's file is one JSON object: its figures by name, and under ``run`` its name, command,
baseline, commit, date, machine, and the load before and after. A figure is a number, a ``summary``
of several, a ``mean`` with its 95 % ``interval``, or an object of these; inner names are joined by
dots.

``benchmarks/results`` has a file for each name. It lists runs, each with the figures that no later
run has measured again. A run that was transcribed, because it cannot be repeated, has a ``source``.
Figures that no single run gives, as sums of several, say in ``by_hand`` how they came about.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "benchmarks" / "results"
#: The additions of the fixed loop whose time says how fast the machine was.
ADDITIONS = 10_000_000


def summary(values: Sequence[float]) -> dict[str, float]:
    """Summarise repeated measurements as count, median, smallest and largest."""
    return {"n": len(values), "median": median(values), "low": min(values), "high": max(values)}


def estimate(mean: float, low: float, high: float) -> dict[str, Any]:
    """Describe a mean with its 95 % interval."""
    return {"mean": mean, "interval": {"low": low, "high": high}}


def machine() -> dict[str, Any]:
    """Describe this machine, with the seconds that the fixed loop takes on it now."""
    gpu = _output("nvidia-smi", "--query-gpu=name", "--format=csv,noheader").splitlines()
    described = {"cores": os.cpu_count(), "processor": _processor(), "loop_s": _loop_seconds()}
    return described | ({"gpu": gpu[0]} if gpu else {})


class Run:
    """One run of a benchmark, from its first measurement to the file that it writes.

    It is made before anything is measured: that is when it takes the load and times the loop.
    """

    def __init__(self, name: str, *, baseline: str = "", whole: bool = True) -> None:
        """``whole`` is false for a part of the benchmark, whose totals are not those of all."""
        self.name = name
        self.whole = whole
        self.baseline = baseline
        self.load_before = round(os.getloadavg()[0], 2)
        self.machine = machine()
        self.date = datetime.now(UTC).date().isoformat()
        self.began = time.monotonic()

    def described(self) -> dict[str, Any]:
        """Describe the run as it is now."""
        return {
            "name": self.name,
            "whole": self.whole,
            "command": _command(),
            "baseline": self.baseline,
            "commit": _commit(),
            "date": self.date,
            "machine": self.machine,
            "load_before": self.load_before,
            "load_after": round(os.getloadavg()[0], 2),
            "seconds": round(time.monotonic() - self.began, 1),
        }

    def write(self, path: Path | None, figures: Mapping[str, Any]) -> None:
        """Write the figures and the run's description to ``path``, if there is one."""
        if path is not None:
            path.write_text(json.dumps({**figures, "run": self.described()}, indent=1) + "\n")


@dataclass(frozen=True, slots=True)
class Figure:
    """A number that is kept, and the description of its run."""

    value: float
    run: Mapping[str, Any]


def kept(folder: Path = FOLDER) -> dict[str, Figure]:
    """Read the kept figures, each under its file's name, a dot and its own name."""
    found: dict[str, Figure] = {}
    for path in sorted(folder.glob("*.json")):
        for run in json.loads(path.read_text())["runs"]:
            said = {key: value for key, value in run.items() if key != "figures"}
            for name, value in _numbers(run["figures"]):
                found[f"{path.stem}.{name}"] = Figure(value, said)
    return found


def keep(path: Path, folder: Path = FOLDER) -> Path:
    """Keep the figures of a benchmark's file in place of the older ones of the same names.

    Lists and texts are not kept. Raises ValueError where the file does not describe its run, and
    where that was a quick one.
    """
    figures = json.loads(path.read_text())
    run = figures.pop("run", None)
    if run is None:
        raise ValueError(
            f"{path.name} does not describe its run, which this benchmark does not write yet:"
            " transcribe its figures to benchmarks/results, with command, date, load and a source"
        )
    if "--quick" in run["command"].split():
        raise ValueError(f"{path.name} is of a quick run, whose figures are too rough to keep")
    if not run.pop("whole", True):
        raise ValueError(f"{path.name} is of a part, whose totals are not those of the whole")
    new = dict(_named(figures))
    place = folder / f"{run.pop('name')}.json"
    runs = json.loads(place.read_text())["runs"] if place.exists() else []
    for old in runs:
        old["figures"] = {k: v for k, v in _named(old["figures"]) if k not in new}
    runs = [old for old in runs if old["figures"]]
    place.write_text(json.dumps({"runs": [*runs, run | {"figures": new}]}, indent=1) + "\n")
    return place


def _named(figures: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each number and each summary under its dotted name."""
    for key, value in figures.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and not value.keys() & {"median", "interval"}:
            yield from _named(value, f"{name}.")
        elif isinstance(value, int | float | Mapping) and not isinstance(value, bool):
            yield name, value


def _numbers(figures: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield each number under its dotted name; a summary's middle also under the summary's."""
    for name, value in _named(figures):
        if isinstance(value, Mapping):
            yield name, value["median"] if "median" in value else value["mean"]
            yield from _named(value, f"{name}.")
        else:
            yield name, value


def _command() -> str:
    """Return the command of this process, without paths of this machine and names of its files."""
    module = getattr(sys.modules["__main__"], "__spec__", None)
    program = f"python -m {module.name.removesuffix('.__main__')}" if module else "python"
    given = [Path(word).name if os.sep in word else word for word in sys.argv[1:]]
    return re.sub(r"--json[ =]\S+", "--json FILE", " ".join((program, *given)))


def _commit() -> str:
    """Return this checkout's commit, with a plus where files differ; empty outside of git."""
    commit = _output("git", "-C", str(ROOT), "rev-parse", "--short=10", "HEAD").strip()
    changed = _output("git", "-C", str(ROOT), "status", "--porcelain", "-uno").strip()
    return f"{commit}+" if commit and changed else commit


def _output(*command: str) -> str:
    """Return the output of a command; nothing where it is missing or fails."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return ""


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, os.uname().machine)


def _loop_seconds() -> float:
    """Return the seconds of the fixed loop, from the fastest of three tenths of it."""
    spans = []
    for _ in range(3):
        began, total = time.perf_counter(), 0
        for number in range(ADDITIONS // 10):
            total += number
        spans.append(time.perf_counter() - began)
    return round(10 * min(spans), 3)
