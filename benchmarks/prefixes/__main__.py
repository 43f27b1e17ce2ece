"""Common prefixes: is what trials take over right, how much is saved, and what does it cost?

    python -m benchmarks.prefixes --json FILE [--quick] [--only PART ...]

Whole studies on two devices of one core, services warm, in pairs in alternation: merged, and
alone, where each trial trains its own epochs. The grid has all schedules of three pieces of three
learning rates; each piece lasts ten epochs, so 810 epochs have 390 that are distinct. Each pair has
a seed of its own, so trials are checked as often as usual: one in fifty trains what it could take
over.

- ``wrong``: epochs (state hash, metrics) of merged studies that are other ones alone, of
  ``compared`` that both have.
- ``saved``: the epochs that were taken over, of those that could be.
- ``time``: the ratio of the times over the ratio of the epochs trained, on the grid.
- ``hippo_grid``: the ratio of the times, alone over merged, on digits trained in full; under ASHA
  (``hippo_grid.asha``), on MNIST (``hippo_grid.mnist``), and with four pieces of five epochs each
  (``hippo_grid.four``: 1620 epochs, 600 distinct).
- ``optuna_two_s``: the same grid by Optuna in two processes, in a plain loop, nothing merged.
- ``nothing_merges``: a study with random learning rates under ``seeding="shared"``, over the same
  under ``"trial"``: wall time, CPU time of the scheduler, and microseconds an event of the engine.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from penstock.app.host.settings import load

from testkit.results import Run

from ..lib.optuna_sides import slots, two_processes
from . import engine
from .figures import figures_of, nothing_merges, pairs
from .optuna_side import work
from .studies import grids

GRIDS = ("digits", "asha", "four", "mnist")
RUNS, QUICK = 7, 3
DEVICES = "cpu:2x1"


def on_grid(name: str, runs: int) -> dict[str, Any]:
    """The figures of a grid; none where its data is not here."""
    grid = grids().get(name)
    if grid is None:
        return {}
    with slots(2):
        figures = figures_of(name, pairs(load(devices=DEVICES), grid, runs))
    if figures[f"{name}.time"]["median"] < 1.0:
        print(f"{name}: merging loses")
    return figures


def by_optuna(runs: int) -> dict[str, float]:
    """Seconds of the grid by Optuna in two processes, with a journal."""
    with two_processes() as processes:
        spans = [processes.run(work(), "journal")[0] for _ in range(runs + 1)]
    return {"optuna_two_s": median(spans[1:])}  # the first loads the data


def without_prefixes(runs: int) -> dict[str, float]:
    """Return the costs for a study where nothing merges."""
    with slots(2):
        return nothing_merges(load(devices=DEVICES), runs)


def engine_alone(runs: int) -> dict[str, float]:
    """Medians of the engine's microseconds an event, in alternation; and of larger grids."""
    spans: dict[str, list[float]] = {"trial": [], "shared": []}
    for _ in range(runs):
        for seeding, each in spans.items():
            each.append(engine.nothing_merges(seeding))
    pairs_of = zip(spans["shared"], spans["trial"], strict=True)
    figures = {f"engine.nothing_us.{name}": median(each) for name, each in spans.items()}
    figures["engine.nothing_extra_us"] = median(one - other for one, other in pairs_of)
    for pieces in engine.PIECES:
        for seeding in spans:
            found = engine.grid(pieces, seeding)
            name = f"engine.grid{3**pieces}.{seeding}"
            figures |= {f"{name}.{key}": value for key, value in found.items()}
    return figures


def over_all(found: dict[str, Any]) -> dict[str, Any]:
    """Return the figures over all grids, by the names that the issue gives them."""
    named = {"time": "digits.of_epochs", "hippo_grid": "digits.time"}
    named |= {f"hippo_grid.{name}": f"{name}.time" for name in GRIDS[1:]}
    figures = {key: found[of] for key, of in named.items() if of in found}
    for key in ("wrong", "compared", "taken", "mergeable"):
        figures[key] = sum(found.get(f"{name}.{key}", 0) for name in GRIDS)
    if figures["mergeable"]:
        figures["saved"] = figures["taken"] / figures["mergeable"]
    return figures


#: By name; each is given how many times to repeat.
PARTS: dict[str, Callable[[int], dict[str, Any]]] = {
    **{name: partial(on_grid, name) for name in GRIDS},
    "optuna": by_optuna,
    "nothing": without_prefixes,
    "engine": engine_alone,
}


def main() -> None:
    """Run the benchmark as the module's docstring says."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--quick", action="store_true", help="three of each: rough figures")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    given = parser.parse_args()
    baseline = "each trial trains its own epochs, in turns"
    this_run = Run("prefixes", baseline=baseline, whole=given.only == list(PARTS))
    runs = QUICK if given.quick else RUNS
    found: dict[str, Any] = {"cores": os.cpu_count(), "load.begin": os.getloadavg()[0]}
    for part in given.only:
        found |= PARTS[part](runs)
    found |= over_all(found)
    found["load.end"] = os.getloadavg()[0]
    this_run.write(given.json, found)
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
