"""Studies as people write them, compared with Optuna: no schedules to share, nothing to merge.

    python -m benchmarks.ordinary --json FILE [--seeds N] [--cases ...] [--sides ...]

27 configurations under ASHA to nine epochs on two cores, for the cases of
``peers/_ordinary_work.py``. ``default`` is Penstock as it comes; ``tune`` has ``system="tune"``,
and ``precision`` bfloat16 where it is faster, both from the second study of their workload on: the
first is a small one, which warms every side. ``optuna`` is Optuna in two processes with its pruner
of successive halving, ``ray`` Ray Tune's ASHA with warm actors (``make .venv-peers/installed``).
All have the same configurations in the same order, and take turns. Time is from before the study is
created to its end.

``over_optuna.SIDE.CASE`` is Optuna's time over the side's, with the 95 % interval of the mean of
its logarithm; ``.all`` the geometric mean over cases. ``best`` is the difference of the best
accuracies, and ``area`` that of their means over the time of the slower side.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from pathlib import Path
from statistics import fmean, median
from typing import Any

from penstock.tasks.system.precision import native_bf16
from penstock.tasks.training.loop import device_here

from testkit.results import Run, estimate

from ..lib.headline_sides import PYTHON
from ..lib.intervals import half_interval
from ..peers._ordinary_work import FILES, files_here
from .sides import SIDES, Ran, run

SEEDS = 5


def interval_of(values: list[float]) -> Any:
    """Describe the geometric mean of ratios; of a single one there is no interval."""
    logs = [math.log(each) for each in values]
    mean = fmean(logs)
    if len(logs) < 2:
        return math.exp(mean)
    half = half_interval(logs)
    return estimate(math.exp(mean), math.exp(mean - half), math.exp(mean + half))


def difference_of(values: list[float]) -> Any:
    """Describe the mean of differences."""
    if len(values) < 2:
        return fmean(values)
    half = half_interval(values)
    return estimate(fmean(values), fmean(values) - half, fmean(values) + half)


def figures_of(case: str, rounds: list[dict[str, Ran]]) -> dict[str, Any]:
    """Return the figures of one case: ``rounds`` has the sides by seed."""
    found: dict[str, Any] = {}
    for side in rounds[0]:
        found[f"seconds.{side}.{case}"] = median(ran[side].seconds for ran in rounds)
        found[f"epochs.{side}.{case}"] = median(len(ran[side].curve) for ran in rounds)
        found[f"best.{side}.{case}"] = median(ran[side].best for ran in rounds)
    for side in SIDES.keys() & rounds[0].keys():
        if "optuna" not in rounds[0]:
            continue
        pairs = [(ran["optuna"], ran[side]) for ran in rounds]
        ratios = [theirs.seconds / ours.seconds for theirs, ours in pairs]
        found[f"over_optuna.{side}.{case}"] = interval_of(ratios)
        better = [ours.best - theirs.best for theirs, ours in pairs]
        found[f"best_over_optuna.{side}.{case}"] = difference_of(better)
        areas = [
            ours.area(until) - theirs.area(until)
            for theirs, ours in pairs
            for until in (max(ours.seconds, theirs.seconds),)
        ]
        found[f"area_over_optuna.{side}.{case}"] = difference_of(areas)
    return found


def overall(rounds: dict[str, list[dict[str, Ran]]]) -> dict[str, Any]:
    """Return the geometric mean over cases of Optuna's time over each side's, by seed."""
    seeds = list(zip(*rounds.values(), strict=False))
    sides = set.intersection(*(set(ran) for of_seed in seeds for ran in of_seed))
    found = {}
    for side in SIDES.keys() & sides if "optuna" in sides else ():
        ratios = [
            math.exp(fmean(math.log(r["optuna"].seconds / r[side].seconds) for r in of_seed))
            for of_seed in seeds
        ]
        found[f"over_optuna.{side}.all"] = interval_of(ratios)
    return found


def main() -> None:
    """Run the benchmark as the module's docstring says."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--cases", nargs="+", choices=FILES, default=list(FILES))
    parser.add_argument("--sides", nargs="+", choices=[*SIDES, "optuna", "ray"])
    given = parser.parse_args()
    sides = given.sides or [*SIDES, "optuna", "ray"]
    if "precision" in sides and not native_bf16(device_here()):
        print("precision is left out: this processor has no bfloat16")
        sides.remove("precision")
    if "ray" in sides and not PYTHON.exists():
        print("ray is left out: make .venv-peers/installed")
        sides.remove("ray")
    cases = [case for case in given.cases if files_here(case)]
    for case in set(given.cases) - set(cases):
        print(f"({case}) is left out: set PENSTOCK_DATA to a folder with {', '.join(FILES[case])}")
    if not cases:
        parser.exit(message="no case is left\n")
    whole = cases == list(FILES) and not given.sides
    this_run = Run("ordinary", baseline="Optuna in two processes, in turns", whole=whole)
    began = time.monotonic()
    found: dict[str, Any] = {"cores": os.cpu_count(), "load.begin": os.getloadavg()[0]}
    rounds: dict[str, list[dict[str, Ran]]] = {case: [] for case in cases}
    for seed in range(given.seeds):
        turn = seed % len(sides)
        ran: dict[str, dict[str, Ran]] = {case: {} for case in cases}
        for side in (*sides[turn:], *sides[:turn]):
            for case, each in zip(cases, run(side, [(case, seed) for case in cases]), strict=True):
                ran[case][side] = each
                print(
                    f"  seed {seed} {case} {side}: {each.seconds:.1f} s, {len(each.curve)} epochs,"
                    f" best {each.best:.3f} {each.config}",
                    flush=True,
                )
        for case in cases:
            rounds[case].append(ran[case])
            found |= figures_of(case, rounds[case])
        found |= overall(rounds)
        found |= {"seeds": seed + 1, "load.end": os.getloadavg()[0]}
        found["seconds"] = time.monotonic() - began
        this_run.write(given.json, found)  # so far, if it is cut off
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
