"""How near the best makespan each policy comes: simulated, with the real engine and runner.

    python -m benchmarks.placement --json FILE [--quick] [--curves DIR]

Ratio is makespan over the larger of two lower bounds (``scheduler/bounds.py``): the fluid bound and
the one that counts whole epochs. Both take resizes for free, so a ratio of 1 is out of reach where
a resize has a price. Simulated time; the speed curves are fits to real trainings.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from statistics import fmean

from optuna.distributions import FloatDistribution, distribution_to_json
from penstock.app.simulate import simulate
from penstock.profiling.cost import CostTable
from penstock.profiling.devices import Device
from penstock.scheduler.bounds import fluid_bound, whole_epochs_bound
from penstock.scheduler.courses import curve_of
from penstock.scheduler.decisions import Dispatch
from penstock.scheduler.full import FullBudget
from penstock.scheduler.strategy import Entry, TrialGroup
from penstock.scheduler.study import Code, StrategySpec, StudySpec, trial_id

from . import _curves
from ._instances import Instance, instances
from ._instances import Work as Trial

#: name: (the engine's policy, whether trials may be wider than one device)
POLICIES = {
    "fifo": ("fifo", False),
    "longest_first": ("longest_first", False),
    "longest_first+wide": ("longest_first", True),
    "static_fluid": ("static_fluid", True),
    "dynamic_fluid": ("dynamic_fluid", True),
    "waterfill": ("waterfill", True),
}


@dataclass
class Known(CostTable):
    """A cost table that knows the curves, or (``beliefs``) takes each trial's work for another."""

    work: dict[str, Trial] = field(default_factory=dict)
    beliefs: dict[str, float] = field(default_factory=dict)

    def saw_epoch(self, study: str, trial: str, seconds: float, width: int) -> bool:
        """It is known."""
        return False

    def saw_segment(self, seconds: float, training: float, *, resized: bool) -> None:
        """It is known."""

    def expected(
        self, study: str, trial: str, widest: int
    ) -> tuple[float, tuple[tuple[int, float], ...]]:
        """As in the instance, times the error."""
        known = self.work[trial]
        return known.level * self.beliefs.get(trial, 1.0), known.shape[:widest]

    def epoch_seconds(self, study: str, trial: str) -> float:
        """On one device."""
        return self.expected(study, trial, 1)[0]


@dataclass(slots=True)
class Budgets(FullBudget):
    """One TrialGroup whose trials have a budget each."""

    budgets: tuple[int, ...] = ()

    def proposed(self, trials: tuple[str, ...], *, exhausted: bool) -> TrialGroup:
        """All at once."""
        return tuple(Entry(*each) for each in zip(trials, self.budgets, strict=True))


@dataclass
class Training:
    """Training that takes what the instance says."""

    work: dict[str, Trial]
    price: float

    def epoch(self, dispatch: Dispatch, spec: StudySpec, epoch: int) -> tuple[float, float]:
        """Seconds by width; the metric does not matter."""
        trial = self.work[dispatch.segment.trial]
        # Beyond what was measured more devices are of no use.
        width = min(len(dispatch.segment.members), trial.shape[-1][0])
        return trial.level * dict(trial.shape)[width], 0.0

    def resize(self, dispatch: Dispatch, spec: StudySpec) -> float:
        """The instance's price."""
        return self.price


def bound(instance: Instance) -> float:
    """The larger of both lower bounds, seconds."""
    work = [(w.epochs, w.level, w.shape) for w in instance.work]
    fluid = fluid_bound(
        [(epochs * level, curve_of(shape, instance.devices).hull) for epochs, level, shape in work],
        instance.devices,
    )
    return max(fluid, whole_epochs_bound(work, instance.devices))


def makespan(instance: Instance, policy: str, mode: str = "exact") -> float:
    """Simulated seconds."""
    name, wide = POLICIES[policy]
    spec = _spec(len(instance.work), instance.devices if wide else 1)
    work = {trial_id(spec.id, number): trial for number, trial in enumerate(instance.work)}
    rng = Random(instance.name)
    costs: CostTable
    if mode == "learned":
        costs = CostTable()
    else:
        error = 0.5 if mode == "noise" else 0.0
        beliefs = {trial: math.exp(rng.gauss(0.0, error)) for trial in sorted(work)}
        costs = Known(work=work, beliefs=beliefs, resize=instance.price)
    devices = [Device(f"d{k}", "n", "cpu", (k,), None) for k in range(instance.devices)]
    training = Training(work, instance.price)
    budgets = tuple(trial.epochs for trial in instance.work)
    done = simulate(
        [spec],
        devices,
        training,
        policy=name,
        costs=costs,
        strategies=lambda spec: Budgets(spec.n_trials, max(budgets), budgets=budgets),
    )
    return done.makespan


def _spec(trials: int, width: int) -> StudySpec:
    number = distribution_to_json(FloatDistribution(0.0, 1.0))
    return StudySpec(
        id="s",
        name="s",
        contract="empty",
        code=Code("simulated:work", "", ""),
        metric="loss",
        direction="minimize",
        n_trials=trials,
        space=(("x", number),),
        strategy=StrategySpec("full", 81),
        shards=width,
        max_width=width,
    )


def one(instance: Instance) -> dict[str, float]:
    """Ratios of all policies on one instance, and CPU seconds of each."""
    least = bound(instance)
    row = {"bound": least}
    for policy in POLICIES:
        before = time.process_time()
        row[policy] = makespan(instance, policy) / least
        row[f"{policy} cpu"] = time.process_time() - before
    row["noise"] = makespan(instance, "waterfill", "noise") / least
    row["learned"] = makespan(instance, "waterfill", "learned") / least
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--curves", type=Path, help="a folder of measured speed curves")
    parser.add_argument("--each", type=int)
    given = parser.parse_args()
    curves = _curves.read(given.curves) if given.curves else _curves.fitted()
    each = given.each or (6 if given.quick else 84)
    todo = list(instances(each, curves))
    began = time.perf_counter()
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        rows = dict(zip([i.name for i in todo], pool.map(one, todo, chunksize=2), strict=True))
    figures: dict[str, float] = {}
    print(f"{len(rows)} instances, {time.perf_counter() - began:.0f} s")
    for policy in (*POLICIES, "noise", "learned"):
        ratios = sorted(row[policy] for row in rows.values())
        figures[f"{policy}.ratio.mean"] = fmean(ratios)
        figures[f"{policy}.ratio.p95"] = ratios[math.ceil(0.95 * len(ratios)) - 1]
        figures[f"{policy}.ratio.max"] = ratios[-1]
        cpu = sum(row.get(f"{policy} cpu", 0.0) for row in rows.values())
        print(
            f"{policy:20} {fmean(ratios):.3f} {figures[f'{policy}.ratio.p95']:.3f} {ratios[-1]:.3f} {cpu:.0f} s"
        )
    worst = sorted(todo, key=lambda i: -rows[i.name]["waterfill"])[:10]
    for i in worst:
        print({k: round(v, 3) for k, v in rows[i.name].items() if "cpu" not in k}, i.name, i.about)
    for family in sorted({i.name.partition("-")[0] for i in todo}):
        print(
            family,
            round(fmean(rows[i.name]["waterfill"] for i in todo if i.name.startswith(family)), 4),
        )
    figures["vs_longest_first.worst"] = max(
        r["waterfill"] / r["longest_first"] for r in rows.values()
    )
    print(figures["vs_longest_first.worst"])
    if given.json:
        given.json.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    sys.exit(main())
