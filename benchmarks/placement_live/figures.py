"""Makespans of each policy over the best possible on real devices, and their predictions.

    python -m benchmarks.placement_live --json FILE [--quick]

Real studies on two devices of one core each, warm trainers. Ratio is makespan, from submission to
the end of the study, over the bound worked out from the epochs as they were measured in all runs:
start, data and model of trials, dispatch, commits and resizes are in the former only. The
simulation is given the costs of the runs before, one of them at random widths, and foretells those
that come after. ``NAME.ratio`` is a policy's mean over all studies with its 95 % interval, by its
repeats. ``flat.wide`` is how many epochs of the workload that does not scale were
on two devices under ``waterfill``, and ``flat.windows`` how many windows measured both widths.
"""

from __future__ import annotations

import argparse
import os
import time
from collections import defaultdict
from pathlib import Path
from statistics import fmean, median
from typing import Any

import penstock
from penstock.app.server.services import services

from testkit.random_widths import RANDOM_WIDTHS
from testkit.results import Run, estimate

from ..lib.intervals import half_interval
from ..lib.plans import policy
from ..lib.studies import installation
from .live import DEVICES, FLAT, Ran, Workload, bound, costs, foretold, run, workloads

REPEATS = 5
#: On how many devices a trial may be: as in ``benchmarks.placement``, the first two stay narrow.
POLICIES = {"fifo": 1, "longest_first": 1, "dynamic_fluid": 2, "waterfill": 2}
#: Of makespans: the simulation may be off by as much as runs differ, and by this share anyway.
ALLOWED = 0.10


def one(name: str, chosen: dict[str, Workload], widest: int) -> dict[str, Ran]:
    """All studies once under the policy ``name``, on services of their own."""
    with policy(name), installation("cpu:2x1") as settings:
        services.ensure_up(settings, settings.devices)
        for code in {workload.code: None for workload in chosen.values()}:
            # Torch and data are loaded.
            run(settings, Workload(code, penstock.FullBudget(2), 4), widest)
        return {study: run(settings, workload, widest) for study, workload in chosen.items()}


def mismatches(runs: list[Ran]) -> int:
    """Trials that did not end with the same epoch and state in every run."""
    numbers = {number for ran in runs for number in ran.finals}
    return sum(len({ran.finals.get(number) for ran in runs}) > 1 for number in numbers)


def spread(makespans: list[float]) -> float:
    """Of repeated runs: from the shortest to the longest, over the median."""
    return (max(makespans) - min(makespans)) / median(makespans)


def summary(study: str, calibration: Ran, runs: dict[str, list[Ran]]) -> dict[str, Any]:
    """The figures of one study.

    The simulation knows the calibration, and the first of each policy's runs where it has several.
    """
    every = [calibration, *(ran for mine in runs.values() for ran in mine)]
    least = bound(calibration, costs(every))
    earlier = costs([calibration, *(mine[0] for mine in runs.values() if len(mine) > 1)])
    figures: dict[str, Any] = {
        f"{study}.bound_s": least,
        f"{study}.mismatches": mismatches(every),
        f"{study}.wide_factor": dict(earlier.shape)[2],
    }
    for name, mine in runs.items():
        makespans = [ran.makespan for ran in mine]
        later = makespans[1:] or makespans
        told = foretold(mine[0], earlier, name)
        wide = [row.width > 1 for ran in mine for _, row in ran.epochs]
        figures |= {
            f"{study}.{name}.makespan_s": median(makespans),
            f"{study}.{name}.ratio": median(makespans) / least,
            f"{study}.{name}.ratios": [each / least for each in makespans],
            f"{study}.{name}.spread": spread(makespans),
            f"{study}.{name}.foretold_s": told,
            f"{study}.{name}.simulated_vs_real": told / median(later),
            f"{study}.{name}.wide_epochs": fmean(wide),
        }
    return figures


def main() -> None:
    """Print a table, write the figures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="few trials and epochs, one run")
    options = parser.parse_args()
    this_run = Run("placement_live", baseline="a lower bound of the makespan")
    chosen = workloads(options.quick)
    load, began = os.getloadavg()[0], time.monotonic()
    print(f"load before {load:.1f}")
    calibration = one(RANDOM_WIDTHS, chosen, DEVICES)
    runs: dict[str, dict[str, list[Ran]]] = {s: defaultdict(list) for s in chosen}
    for turn in range(1 if options.quick else REPEATS):
        # In turns and back: a machine that gets slower does so for all of them.
        for name in list(POLICIES)[:: 1 if turn % 2 == 0 else -1]:
            for study, ran in one(name, chosen, POLICIES[name]).items():
                runs[study][name].append(ran)
    figures: dict[str, Any] = {}
    for study in chosen:
        figures |= summary(study, calibration[study], runs[study])
    print(
        f"{'':16}{'policy':15}{'seconds':>9}{'/ bound':>9}{'spread':>8}{'foretold':>10}{'wide':>6}"
    )
    for study in chosen:
        print(f"{study:16}{'bound':15}{figures[f'{study}.bound_s']:9.2f}")
        for name in POLICIES:
            of = {
                key: figures[f"{study}.{name}.{key}"]
                for key in ("makespan_s", "ratio", "spread", "simulated_vs_real", "wide_epochs")
            }
            print(
                f"{'':16}{name:15}{of['makespan_s']:9.2f}{of['ratio']:9.3f}{of['spread']:8.1%}"
                f"{of['simulated_vs_real']:10.3f}{of['wide_epochs']:6.0%}"
            )
    figures["mismatches"] = sum(figures[f"{study}.mismatches"] for study in chosen)
    for name in POLICIES:
        figures[f"{name}.ratio"] = fmean(figures[f"{study}.{name}.ratio"] for study in chosen)
        each = [figures[f"{study}.{name}.ratios"] for study in chosen]
        print(f"{name:15} mean ratio {figures[f'{name}.ratio']:.3f}", end="")
        if not options.quick:
            means = [fmean(repeat) for repeat in zip(*each, strict=True)]
            half = half_interval(means)
            low, high = fmean(means) - half, fmean(means) + half
            figures[f"{name}.ratio"] = estimate(fmean(means), low, high)
            print(f" ({low:.3f} to {high:.3f})", end="")
        print()
    flat = runs[FLAT]["waterfill"]
    figures["flat.wide"] = sum(row.width > 1 for ran in flat for _, row in ran.epochs)
    figures["flat.windows"] = sum(ran.windows for ran in flat)
    off = [
        f"{study}.{name}"
        for study in chosen
        for name in POLICIES
        if abs(figures[f"{study}.{name}.simulated_vs_real"] - 1)
        > max(ALLOWED, 2 * figures[f"{study}.{name}.spread"])
    ]
    figures |= {
        "simulated_vs_real.within": 1 - len(off) / (len(chosen) * len(POLICIES)),
        "seconds": time.monotonic() - began,
        "load_before": load,
        "load_after": os.getloadavg()[0],
    }
    for key in ("mismatches", "flat.wide", "flat.windows", "simulated_vs_real.within"):
        print(f"{key:28} {figures[key]:.3f}")
    print("foretold worse than allowed:", ", ".join(off) or "none")
    print(f"load after {figures['load_after']:.1f}, {figures['seconds']:.0f} s")
    this_run.write(options.json, figures)


if __name__ == "__main__":
    main()
