"""Makespans of each policy over the best possible: simulated, with the real engine and runner.

    python -m benchmarks.placement --json FILE [--quick] [--every N] [--judges N]
        [--seed TEXT] [--curves DIR]

Ratio is makespan over the larger of two lower bounds (``scheduler/policies/planner/bounds.py``):
the fluid bound and the one that counts whole epochs. Both take resizes for free, so a ratio of 1 is
out of reach where a resize has a price. Simulated time; the speed curves are fits to real
trainings.
"""

from __future__ import annotations

import argparse
import math
import os
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from random import Random
from statistics import fmean, median

from penstock.extensions.simulation.experiment import lower_bound, simulated_devices
from penstock.extensions.simulation.generated import BATCHES, FAMILIES, Instance, instances
from penstock.extensions.simulation.simulator import simulate
from penstock.extensions.simulation.workload import (
    KnownCosts,
    SimulatedTraining,
    StudyWork,
    Workload,
    study_spec,
)
from penstock.profiling.costs.reference_curves import fitted
from penstock.profiling.costs.table import CostTable
from penstock.scheduler.model.snapshot import Candidate, Snapshot
from penstock.scheduler.model.study import trial_id
from penstock.scheduler.policies.waterfill import waterfill

from testkit import curves as _curves
from testkit.results import Run

from .judge_figures import judge_figures
from .sharing import sharing_figures
from .tuner_figures import tuner_figures

#: name: (the engine's policy, whether trials may be wider than one device)
POLICIES = {
    "fifo": ("fifo", False),
    "longest_first": ("longest_first", False),
    "longest_first+wide": ("longest_first", True),
    "static_fluid": ("static_fluid", True),
    "dynamic_fluid": ("dynamic_fluid", True),
    "waterfill": ("waterfill", True),
}
#: name of a row: the policy, and the error of what it believes (None: it knows nothing).
UNSURE = {
    "noise_0.5": ("waterfill", 0.5),
    "noise_0.5.dynamic_fluid": ("dynamic_fluid", 0.5),
    "noise_0.5.longest_first": ("longest_first+wide", 0.5),
    "learned_curves": ("waterfill", None),
    "learned_curves.dynamic_fluid": ("dynamic_fluid", None),
}
#: The best of ``POLICIES`` on each instance: what a policy that chose among them could come to.
HINDSIGHT = "best_in_hindsight"


def bound(instance: Instance) -> float:
    """The larger of both lower bounds, seconds."""
    work = _workload(instance, instance.devices)
    spec = work.studies[0].spec
    epochs = {trial_id(spec.id, k): each.epochs for k, each in enumerate(instance.work)}
    return lower_bound(work, epochs, instance.devices)


def makespan(instance: Instance, policy: str, error: float | None = 0.0) -> float:
    """Simulated seconds.

    ``error``: each trial's work is taken for another, lognormal with this deviation; None: nothing
    is known in advance, curves and the price of a resize are learned on the way.
    """
    name, wide = POLICIES[policy]
    work = _workload(instance, instance.devices if wide else 1)
    [study] = work.studies
    rng = Random(instance.name)
    trials = [trial_id(study.spec.id, number) for number in range(len(instance.work))]
    costs = CostTable()
    if error is not None:
        beliefs = {trial: math.exp(rng.gauss(0.0, error)) for trial in trials}
        costs = KnownCosts(workload=work, beliefs=beliefs, error=error, resize=instance.price)
    done = simulate(
        [study.spec],
        simulated_devices(f"gpu:{instance.devices}"),
        SimulatedTraining(work),
        policy=name,
        costs=costs,
        strategies=work.strategy,
        enqueued=work.enqueued,
    )
    return done.makespan


def _workload(instance: Instance, width: int) -> Workload:
    params = [each.params for each in instance.work]
    spec = study_spec(instance.name, len(instance.work), width, params=params)
    return Workload(instance.name, (StudyWork(spec, instance.work, budgets=True),), instance.price)


def one(instance: Instance) -> dict[str, float]:
    """Ratios of all policies on one instance, and of those that are not sure."""
    least = bound(instance)
    row = {policy: makespan(instance, policy) / least for policy in POLICIES}
    row[HINDSIGHT] = min(row.values())
    return row | {name: makespan(instance, *each) / least for name, each in UNSURE.items()}


def replan_ms(trials: int, devices: int) -> float:
    """CPU milliseconds of one plan of ``trials`` that all wait, median."""
    rng = Random(f"penstock replan {trials}")
    family = fitted()["imagenet", "aws"]
    shapes = []
    for batch in BATCHES["imagenet"]:
        curve = family.curve(batch, min(devices, 64))
        shapes.append(tuple((width, seconds / curve[0][1]) for width, seconds in curve))
    waiting = tuple(
        Candidate(
            f"t{number}",
            "s",
            0,
            rng.choice((1, 3, 9, 27)),
            0.0,
            widest=64,
            level=100 * rng.lognormvariate(0, 0.5),
            shape=rng.choice(shapes),
        )
        for number in range(trials)
    )
    snapshot = Snapshot(0.0, waiting, devices, (), devices, devices, resize=10.0)
    times = []
    for _ in range(5):
        before = time.process_time()
        waterfill(snapshot)
        times.append(1e3 * (time.process_time() - before))
    return median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="36 instances instead of 504")
    parser.add_argument("--every", type=int, default=1, help="every so many of the instances")
    parser.add_argument("--judges", type=int, help="how many judges: 24 if quick, else 504")
    parser.add_argument("--seed", default="", help="draws other judges than the policy's commit")
    parser.add_argument("--curves", type=Path, help="a folder of measured speed curves")
    given = parser.parse_args()
    this_run = Run("placement", baseline="a lower bound of the makespan")
    curves = _curves.read(given.curves) if given.curves else fitted()
    todo = list(instances(6 if given.quick else 84, curves))[:: given.every]
    began, load = time.perf_counter(), os.getloadavg()[0]
    print(f"load before {load:.1f}")
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        rows = list(pool.map(one, todo))
    print(f"{len(rows)} instances in {time.perf_counter() - began:.0f} s, simulated\n")
    figures: dict[str, float] = {
        "instances": len(rows),
        "seconds": time.perf_counter() - began,
        "cores": os.cpu_count() or 0,
        "load_before": load,
    }
    print(f"{'makespan / bound':30} {'mean':>7} {'p95':>7} {'max':>7}")
    for name in rows[0]:
        ratios = sorted(row[name] for row in rows)
        kinds = (fmean(ratios), ratios[math.ceil(0.95 * len(ratios)) - 1], ratios[-1])
        figures |= zip(
            (f"{name}.{'' if name in UNSURE else 'ratio.'}{k}" for k in ("mean", "p95", "max")),
            kinds,
            strict=True,
        )
        print(f"{name:30} {kinds[0]:7.3f} {kinds[1]:7.3f} {kinds[2]:7.3f}")
    for other in ("dynamic_fluid", "longest_first"):
        worst = max(row["waterfill"] / row[other] for row in rows)
        figures[f"vs_{other}.worst"] = worst
        print(f"waterfill beside {other}: at worst {worst:.3f} times as long")
    earned = 1 - figures[f"{HINDSIGHT}.ratio.mean"] / figures["waterfill.ratio.mean"]
    figures["best_in_hindsight.vs_waterfill"] = earned
    print(f"choosing the best of all in hindsight would save {earned:.1%} of waterfill's makespan")
    print("\nwaterfill's worst ten:")
    order = sorted(range(len(rows)), key=lambda at: -rows[at]["waterfill"])
    for at in order[:10]:
        others = ", ".join(f"{name} {rows[at][name]:.3f}" for name in rows[at])
        print(f"  {todo[at].name}: {todo[at].about}\n    {others}")
    print("\nby family:")
    for family in FAMILIES:
        mine = [row for row, each in zip(rows, todo, strict=True) if each.name.startswith(family)]
        means = ", ".join(f"{name} {fmean(row[name] for row in mine):.3f}" for name in rows[0])
        print(f"  {family}: {means}")
    print()
    figures |= judge_figures(given.judges or (24 if given.quick else 504), given.seed)
    print()
    figures |= tuner_figures(quick=given.quick)
    print()
    for trials, devices in ((200, 64), (2000, 1000), (20000, 10000)):
        taken = replan_ms(trials, devices)
        figures[f"replan_ms.{trials}x{devices}"] = taken
        print(f"one plan of {trials} trials on {devices} devices: {taken:.0f} ms of CPU time")
    print()
    figures |= sharing_figures(10 if given.quick else 60)
    figures["load_after"] = os.getloadavg()[0]
    print(f"load after {figures['load_after']:.1f}")
    this_run.write(given.json, figures)


if __name__ == "__main__":
    main()
