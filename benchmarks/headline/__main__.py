"""Whole studies with everything on, compared with one trial a device and with the peers.

    python -m benchmarks.headline --json FILE [--seeds N] [--cases a b c] [--sides ...]

81 configurations with schedules (three pieces of three learning rates each, three weight decays,
``seeding="shared"``) under ASHA to 27 epochs, for (a) an MLP 64-32-10 on digits, (b) an MLP
784-128-10 on MNIST's first 10,000 images, (c) LeNet-5 on CIFAR-10's first 2,000. Two cores, all
sides warm, in alternation, a seed a round; all have the configurations in the same order.

Time is from before the study is created to the first epoch whose accuracy is within 0.5 points of
the best, by the smallest of the sides' best, so that all reach it. ``whole.*`` is the same with
the time to the study's end. Keys are medians over seeds. ``over_SIDE.CASE`` is that side's time
over ``everything``'s. ``factor.avoided``, ``.density`` and ``.placement`` are what common prefixes,
trials trained together, and the default policy instead of ``fifo`` make of it, one after the other:
by seed their product is ``over_fifo``. ``mismatches`` are epochs of Penstock's sides with other
bits than under ``fifo``, where each trial is trained alone. ``longest.fifo.CASE`` are the seconds
of all epochs of the longest trial under ``fifo``: at one core no plan is faster than that.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from statistics import median
from typing import Any

from testkit.results import Run

from ..lib.headline_sides import PYTHON, SCRIPTS, SIDES, Ran, differing, run
from ..peers._headline_work import FILES, files_here

SEEDS = 5
#: Distance from the best accuracy that counts as reached.
NEAR = 0.005
#: Factor, and the sides with and without what makes it.
FACTORS = {
    "avoided": ("avoided", "fifo"),
    "density": ("density", "avoided"),
    "placement": ("everything", "density"),
}


def times_of(ran: dict[str, Ran]) -> dict[str, float]:
    """Seconds of each side until it is near the best that all of them reach."""
    wanted = min(each.best for each in ran.values()) - NEAR
    return {side: each.reaches(wanted) for side, each in ran.items()}


def ratios_of(times: dict[str, float]) -> dict[str, float]:
    """The figures of one seed of one case, as far as the sides were run."""
    mine = times["everything"]
    found = {f"over_{side}": each / mine for side, each in times.items() if side != "everything"}
    for name, (with_it, without) in FACTORS.items():
        if with_it in times and without in times:
            found[f"factor.{name}"] = times[without] / times[with_it]
    return found


def figures_of(case: str, rounds: list[dict[str, Ran]]) -> dict[str, Any]:
    """Of one case: ``rounds`` has the sides by seed."""
    figures: dict[str, Any] = {}
    reached = [times_of(ran) for ran in rounds]
    whole = [{side: each.seconds for side, each in ran.items()} for ran in rounds]
    for prefix, times in (("", reached), ("whole.", whole)):
        ratios = [ratios_of(each) for each in times]
        for name in ratios[0]:
            each = sorted(found[name] for found in ratios)
            figures[f"{prefix}{name}.{case}"] = median(each)
            figures[f"{prefix}{name}.{case}.range"] = [each[0], each[-1]]
        for side in times[0]:
            figures[f"{prefix}seconds.{side}.{case}"] = median(each[side] for each in times)
    for side in rounds[0]:
        figures[f"epochs.{side}.{case}"] = median(len(ran[side].curve) for ran in rounds)
        figures[f"best.{side}.{case}"] = median(ran[side].best for ran in rounds)
        if side in SIDES:
            figures[f"longest.{side}.{case}"] = median(ran[side].longest for ran in rounds)
            figures[f"taken.{side}.{case}"] = median(ran[side].taken for ran in rounds)
    return figures


def mismatches(rounds: list[dict[str, Ran]]) -> tuple[int, int]:
    """Epochs of Penstock's sides that are other ones under ``fifo``, and how many were compared."""
    counts = [
        differing(ran["fifo"].bits, ran[side].bits)
        for ran in rounds
        if "fifo" in ran
        for side in SIDES.keys() & ran.keys() - {"fifo"}
    ]
    return sum(wrong for wrong, _ in counts), sum(compared for _, compared in counts)


def main() -> None:
    """Run the benchmark as the module's docstring says."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--cases", nargs="+", choices=FILES, default=list(FILES))
    parser.add_argument("--sides", nargs="+", choices=[*SIDES, *SCRIPTS])
    given = parser.parse_args()
    this_run = Run(
        "headline",
        baseline="one trial a device; Optuna in two processes; Ray Tune with warm actors, in turns",
    )
    sides = given.sides or [*SIDES, *SCRIPTS]
    if "ray" in sides and not PYTHON.exists():
        print("Ray Tune is left out: make bench-peers installs it")
        sides.remove("ray")
    cases = [case for case in given.cases if files_here(case)]
    for case in set(given.cases) - set(cases):
        print(f"({case}) is left out: set PENSTOCK_DATA to a folder with {', '.join(FILES[case])}")
    began = time.monotonic()
    found: dict[str, Any] = {"cores": os.cpu_count(), "load.begin": os.getloadavg()[0]}
    rounds: dict[str, list[dict[str, Ran]]] = {case: [] for case in cases}
    for seed in range(given.seeds):
        turn = seed % len(sides)
        ran: dict[str, dict[str, Ran]] = {case: {} for case in cases}
        for side in (*sides[turn:], *sides[:turn]):
            for case, each in zip(cases, run(side, [(case, seed) for case in cases]), strict=True):
                ran[case][side] = each
                print(f"  seed {seed} ({case}) {side}: {each.seconds:.1f} s", flush=True)
        for case in cases:
            rounds[case].append(ran[case])
            found |= figures_of(case, rounds[case])
        every = [each for case in cases for each in rounds[case]]
        found["mismatches"], found["compared"] = mismatches(every)
        found |= {"seeds": seed + 1, "load.end": os.getloadavg()[0]}
        found["seconds"] = time.monotonic() - began
        this_run.write(given.json, found)  # so far, if it is cut off
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
