"""The tuners under the policies, simulated: barriers, utilisation, completion, time to target.

All trials have one of the fitted speed curves, epochs that cost between a third and three times the
median, and learning curves that rise to a level of their own. What an epoch and a resize take is
learned on the way, but for the rows ``known``. The target is 95 % of the best value of fifo's run.
Where trials wait for each other ``bound`` is the sum over all rungs of all brackets of the larger
of both bounds (``scheduler/policies/planner/bounds.py``), which brackets that overlap may come
below; else it is that of all work.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field, replace
from random import Random
from statistics import fmean

from penstock.extensions.simulation.simulator import Simulated, simulate
from penstock.extensions.simulation.workload import (
    STEPS_PER_EPOCH,
    KnownCosts,
    StudyWork,
    TrialWork,
    Workload,
    study_spec,
)
from penstock.profiling.costs.reference_curves import fitted
from penstock.profiling.costs.table import CostTable
from penstock.profiling.devices.device import Device
from penstock.scheduler.model.decisions import Dispatch
from penstock.scheduler.model.events import EpochReported
from penstock.scheduler.model.study import StrategySpec, StudySpec, number_of
from penstock.scheduler.policies.planner.bounds import fluid_bound, whole_epochs_bound
from penstock.scheduler.policies.planner.width_plan import Shape, curve_of
from penstock.scheduler.strategies.base import rungs_of
from penstock.scheduler.strategies.hyperband import brackets

POLICIES = ("fifo", "dynamic_fluid", "waterfill")
#: name: strategy, sampler.
SYNC = {"halving": ("halving", "random"), "hyperband": ("hyperband", "random")}
ASYNC = {"asha": ("asha", "random"), "bohb": ("hyperband", "bohb"), "pbt": ("pbt", "random")}
#: Claims of Fluid's abstract, slides and talk (Yu, Liu, Chowdhury, MLSys 2021); not ours.
CLAIMS = (
    "utilisation +10 to +100 %, completion -10 to -70 %",
    "SyncBOHB 2 to 3 times as fast, BOHB and ASHA 1.3 times",
)
#: A base is worth improving on where it leaves this much over the bound.
ROOM = 1.2
#: Seconds of a resize.
PRICE = 10.0


@dataclass
class Training:
    """Epochs' seconds by trial and width, and scores by trial and epoch; remembers the widths."""

    seed: int
    shape: Shape
    widths: dict[tuple[str, int], int] = field(default_factory=dict)

    def level(self, number: int) -> float:
        """Seconds of the trial's epochs on one device."""
        return 100.0 * math.exp(Random(f"{self.seed} {number}").uniform(-1.1, 1.1))

    def epoch(self, dispatch: Dispatch, spec: StudySpec, epoch: int) -> tuple[float, float]:
        """As it is; beyond the widest of the shape more devices are of no use."""
        width = len(dispatch.segment.members)
        self.widths[dispatch.segment.trial, epoch] = width
        best = Random(f"{self.seed} {dispatch.number} score").random()
        factor = dict(self.shape)[min(width, self.shape[-1][0])]
        return self.level(dispatch.number) * factor, best * (1 - 0.7 / epoch**0.5)

    def resize(self, dispatch: Dispatch, spec: StudySpec) -> float:
        """The same for all."""
        return PRICE

    def steps(self, dispatch: Dispatch, spec: StudySpec) -> int:
        """As many for all."""
        return STEPS_PER_EPOCH

    def slowdown(self, at_work: int) -> float:
        """Devices have one slot."""
        return 1.0


@dataclass(frozen=True)
class Run:
    """One simulated study: seconds to its end, mean completion time of its trials, busy share."""

    makespan: float
    completion: float
    utilisation: float
    best: tuple[tuple[float, float], ...]
    bound: float

    def reaches(self, target: float) -> float:
        """When the first trial is at ``target``; never: inf."""
        return next((at for at, value in self.best if value >= target), math.inf)


def run(
    tuner: tuple[str, str],
    policy: str,
    devices: int,
    trials: int,
    seed: int,
    *,
    known: bool = False,
) -> Run:
    """``trials`` trials of up to 27 epochs on ``devices`` devices.

    ``known``: their curves and the price of a resize, else these are learned on the way.
    """
    strategy, sampler = tuner
    pbt = strategy == "pbt"
    family = fitted()["imagenet", "aws"]
    curve = family.curve(800, devices)
    shape = tuple((width, seconds / curve[0][1]) for width, seconds in curve)
    wide = 1 if policy == "fifo" else devices
    plan = StrategySpec(strategy, 27, min_epochs=3 if pbt else 1)
    spec = replace(
        study_spec("tuner", trials, wide, strategy=plan),
        metric="score",
        direction="maximize",
        sampler=sampler,
        seed=seed,
    )
    work = Training(seed, shape)
    costs = CostTable()
    if known:
        each = tuple(TrialWork(work.level(number), shape) for number in range(trials))
        costs = KnownCosts(workload=Workload("tuner", (StudyWork(spec, each),)), resize=PRICE)
    places = [Device(f"d{k}", "n", "cpu", (k,), None) for k in range(devices)]
    return _read(simulate([spec], places, work, policy=policy, costs=costs), work, spec, devices)


def _read(done: Simulated, work: Training, spec: StudySpec, devices: int) -> Run:
    reports = [event for event in done.trace if isinstance(event, EpochReported)]
    ends: dict[str, float] = {}
    best: list[tuple[float, float]] = []
    layers: dict[tuple[int, int], Counter[int]] = {}
    for event in reports:
        ends[event.trial] = event.at
        value = event.metrics[0][1]
        if not best or value > best[-1][1]:
            best.append((event.at, value))
        number = number_of(event.trial)
        layers.setdefault(_layer(spec, number, event.epoch), Counter())[number] += 1
    hull = curve_of(work.shape, devices).hull
    bound = 0.0
    for layer in layers.values():
        rows = [(epochs, work.level(number), work.shape) for number, epochs in layer.items()]
        fluid = fluid_bound([(epochs * level, hull) for epochs, level, _ in rows], devices)
        bound += max(fluid, whole_epochs_bound(rows, devices))
    busy = sum(event.seconds * work.widths[event.trial, event.epoch] for event in reports)
    makespan = max(ends.values())
    return Run(makespan, fmean(ends.values()), busy / (devices * makespan), tuple(best), bound)


def _layer(spec: StudySpec, number: int, epoch: int) -> tuple[int, int]:
    """The bracket and the rung that the trial is in at ``epoch``; one for all where none wait."""
    levels = rungs_of(spec.strategy)
    if spec.strategy.name == "halving":
        return 0, sum(level < epoch for level in levels)
    if spec.strategy.name != "hyperband":
        return 0, 0
    plan = spec.strategy
    of_study = brackets(len(levels), plan.eta, spec.n_trials, proportional=plan.proportional)
    for at, (s, size) in enumerate(of_study):
        if number < size:
            return at, sum(level < epoch for level in levels[-1 - s :])
        number -= size
    raise ValueError(f"trial {number} is in no bracket")


def tuner_figures(*, quick: bool) -> dict[str, float]:
    """Print the table, and return its figures; all times are simulated."""
    seeds = range(1 if quick else 4)
    cases = [(devices, seed) for devices in ((8,) if quick else (4, 8, 16)) for seed in seeds]
    figures: dict[str, float] = {}
    print("tuners under policies, simulated")
    for name, tuner in {**SYNC, **ASYNC}.items():
        # Of Hyperband all brackets, and one of them once more.
        trials = {"pbt": 12, "hyperband": 60, "bohb": 60}.get(name, 27)
        for known in (False, True) if name in SYNC else (False,):
            runs = {
                p: [run(tuner, p, d, trials, s, known=known) for d, s in cases] for p in POLICIES
            }
            called = f"{name}.known" if known else name
            figures |= (_synchronous if name in SYNC else _asynchronous)(called, runs)
    print("Fluid's claims, theirs and not measured here:")
    for claim in CLAIMS:
        print(f"  {claim}")
    return figures


def _synchronous(name: str, runs: dict[str, list[Run]]) -> dict[str, float]:
    """The ratio to the bound, and how much of the room that other policies leave is used."""
    ours = runs["waterfill"]
    found = {f"sync.{name}.over_bound": fmean(each.makespan / each.bound for each in ours)}
    for base in ("fifo", "dynamic_fluid"):
        used = [
            math.log(b.makespan / o.makespan) / math.log(b.makespan / o.bound)
            for b, o in zip(runs[base], ours, strict=True)
            if b.makespan / o.bound >= ROOM
        ]
        if used:
            found[f"sync.{name}.room_used_vs_{base}"] = fmean(used)
            found[f"sync.{name}.room_used_vs_{base}.worst"] = min(used)
    for key, value in found.items():
        print(f"  {key:48} {value:.3f}")
    return found


def _asynchronous(name: str, runs: dict[str, list[Run]]) -> dict[str, float]:
    """Return figures of each policy compared with fifo."""
    found: dict[str, float] = {}
    targets = [0.95 * each.best[-1][1] for each in runs["fifo"]]
    for policy, mine in runs.items():
        base = runs["fifo"]
        found[f"{name}.{policy}.utilisation"] = fmean(each.utilisation for each in mine)
        pairs = list(zip(mine, base, targets, strict=True))
        found[f"{name}.{policy}.completion_vs_fifo"] = fmean(
            m.completion / b.completion for m, b, _ in pairs
        )
        reached = [(m.reaches(t), b.reaches(t)) for m, b, t in pairs]
        found[f"{name}.{policy}.reached"] = fmean(m < math.inf for m, _ in reached)
        both = [m / b for m, b in reached if m < math.inf]
        if both:
            found[f"{name}.{policy}.to_target_vs_fifo"] = fmean(both)
    for key, value in found.items():
        print(f"  {key:48} {value:.3f}")
    return found
