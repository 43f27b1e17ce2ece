"""Generated workloads that judge placement while it learns, a third of which do not scale.

Theory of operation. The author of a policy knows the cases that it was tried on. So these workloads
are drawn only after the policy's code is final: the seed is the hash of the last commit that
changed it. ``--seed`` draws other ones for development.

Each instance has one to many studies, which may arrive over time, on 1 to 64 devices. The trials of
a study have one *kind* of speed curve, and differ in their lengths and a little in their curves:

- ``flat``: a wider trial is no faster; ``falling``: it is slower;
- ``node_bound``: it scales within a node, and beyond it loses much or all of that;
- ``jagged``: each width has a luck of its own, and some hardly run at all;
- ``noisy``: it scales, but its epochs take now longer and now shorter;
- ``scaling``: by Amdahl's law with a cost a device, or as a training that was measured.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random

from penstock.extensions.simulation.experiment import simulated_devices
from penstock.extensions.simulation.generated import BATCHES
from penstock.extensions.simulation.simulator import simulate
from penstock.extensions.simulation.workload import (
    KnownCosts,
    SimulatedTraining,
    StudyWork,
    TrialWork,
    Workload,
    shape_of,
    study_spec,
    widest,
)
from penstock.profiling.costs.reference_curves import fitted
from penstock.profiling.costs.throughput import Coefficients, Shape, packed_allocation

KINDS = ("flat", "falling", "node_bound", "jagged", "noisy", "scaling")
#: Those of a kind that never scales.
FLAT = ("flat", "falling")
DEVICES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
TRIALS = (1, 2, 4, 6, 9, 16, 27, 40, 64, 100)
EPOCHS = (1, 2, 3, 5, 9, 27, 81, 243, 1000)
#: Steps of an epoch.
STEPS = (20, 100, 500, 3000)
#: Seconds of a resize.
PRICES = (0.0, 0.05, 0.5, 3.0, 15.0, 60.0, 180.0)
STUDIES = (1, 1, 1, 2, 3, 5, 8, 12)
#: The most epochs of an instance: with more it has fewer trials.
MAX_EPOCHS = 4000
#: The share of the devices' time that the studies would take with each trial on one device.
LOADS = (0.3, 0.7, 1.5)
#: Paths of the code that decides where trials are placed, and of its knowledge about them.
POLICY = ("scheduler/policies", "scheduler/planning", "profiling/costs")
#: The policies that ``best_simple`` is the best of, and whether they may widen trials. Each study
#: has a share under all of them, as under the policy that is judged.
SIMPLE = (
    ("fair", False),
    ("longest_first", False),
    ("fair", True),
    ("longest_first", True),
)


@dataclass(frozen=True, slots=True)
class Judge:
    """One instance: its workload on ``devices`` devices, and the kinds of its speed curves."""

    workload: Workload
    devices: int
    kinds: tuple[str, ...]

    @property
    def scales(self) -> bool:
        """True if any of its studies may gain from a second device."""
        return not set(self.kinds) <= set(FLAT)


def judges(seed: str, count: int) -> Iterator[Judge]:
    """``count`` instances; every kind is the first study's equally often."""
    for number in range(count):
        yield judge(seed, number)


def judge(seed: str, number: int) -> Judge:
    """Instance ``number`` of a seed."""
    rng = Random(f"{seed} {number}")
    devices, studies = rng.choice(DEVICES), rng.choice(STUDIES)
    first = KINDS[number % len(KINDS)]
    # Those that do not scale have no study that does: a third of all are such.
    others = FLAT if first in FLAT else KINDS
    kinds = (first, *(rng.choice(others) for _ in range(studies - 1)))
    price = rng.choice(PRICES)
    work = [_trials(rng, kind, devices, MAX_EPOCHS // studies) for kind in kinds]
    total = sum(trial.epochs * trial.level for trials in work for trial in trials)
    gap = total / studies / (devices * rng.choice(LOADS))
    together = rng.random() < 0.3
    arrives, found = 0.0, []
    for index, trials in enumerate(work):
        spec = study_spec(
            f"{kinds[index]}-{index}",
            len(trials),
            widest(trials),
            number=index,
            params=[trial.params for trial in trials],
        )
        found.append(StudyWork(spec, trials, arrives, budgets=True))
        arrives += 0.0 if together else rng.expovariate(1 / gap)
    about = (
        f"{', '.join(kinds)}; {sum(map(len, work))} trials, {devices} devices, resize {price:g} s"
    )
    return Judge(Workload(f"judge-{number}", tuple(found), price, about=about), devices, kinds)


def _trials(rng: Random, kind: str, devices: int, limit: int) -> tuple[TrialWork, ...]:
    """A study's trials, with at most ``limit`` epochs together if it has more than one."""
    most = rng.choice(EPOCHS)
    trials = max(1, min(rng.choice(TRIALS), limit // most))
    budgets = rng.choice(("equal", "uniform", "rungs"))
    level = math.exp(rng.uniform(math.log(0.3), math.log(600.0)))
    spread = rng.choice((0.05, 0.3, 0.7))
    draw = _curves(rng, kind, devices)
    steps = rng.choice(STEPS)
    noise = rng.choice((0.15, 0.3, 0.5)) if kind == "noisy" else 0.02
    found = []
    for _ in range(trials):
        size = rng.choice((1.0, 2.0, 4.0, 8.0))
        own = level * math.exp(rng.gauss(0.0, spread)) * (size / 8.0) ** rng.choice((0.0, -0.3))
        epochs = _epochs(rng, budgets, most)
        levels = tuple(own * math.exp(rng.gauss(0.0, noise)) for _ in range(epochs))
        params = (("size", size),)
        found.append(
            TrialWork(own, draw(rng, size), epochs, levels=levels, params=params, steps=steps)
        )
    return tuple(found)


def _epochs(rng: Random, budgets: str, most: int) -> int:
    if budgets == "equal":
        return most
    if budgets == "uniform":
        return rng.randint(1, most)
    rung = 1
    while rung < most and rng.random() < 0.4:
        rung = min(3 * rung, most)
    return rung


class _Draw:
    """Draws the shape of one trial after another, from what its study has in common."""

    def __init__(self, coefficients: Coefficients, per_node: int, devices: int) -> None:
        self.coefficients, self.per_node, self.devices = coefficients, per_node, devices
        self.luck: dict[int, float] = {}

    def __call__(self, rng: Random, size: float) -> Shape:
        base = self.coefficients
        own = replace(
            base,
            beta_grad=base.beta_grad * size / 4.0,
            alpha_local=base.alpha_local * math.exp(rng.gauss(0.0, 0.1)),
            alpha_node=base.alpha_node * math.exp(rng.gauss(0.0, 0.1)),
        )
        seconds = [
            own.seconds(packed_allocation(width, self.per_node)) * self.luck.get(width, 1.0)
            for width in range(1, self.devices + 1)
        ]
        return tuple((at, each / seconds[0]) for at, each in enumerate(seconds, start=1))


def _curves(rng: Random, kind: str, devices: int) -> _Draw:
    """The curves of a study of this kind. The work on one device is about 1."""
    serial, gamma = rng.choice((0.01, 0.05, 0.2)), rng.choice((1.0, 2.0, 4.0))
    sync, each = rng.choice((0.02, 0.1, 0.3)), rng.choice((0.0, 0.002, 0.02))
    per_node = 64
    if kind == "flat":
        serial, sync, each = 1.0, rng.choice((0.0, 0.05)), 0.0
    elif kind == "falling":
        serial, gamma = rng.choice((0.5, 1.0)), 1.0
        sync, each = rng.choice((0.6, 1.0, 3.0)), rng.choice((0.02, 0.2))
    elif kind == "node_bound":
        per_node = rng.choice((1, 2, 4, 8))
    elif kind == "scaling" and rng.random() < 0.5:
        return _Measured(rng, devices)
    node = rng.choice((0.5, 1.0, 3.0)) if kind == "node_bound" else sync
    draw = _Draw(
        Coefficients(serial, 1.0 - min(serial, 0.99), sync, each, node, each, gamma),
        per_node,
        devices,
    )
    if kind == "jagged":
        spread = rng.choice((0.1, 0.3))
        draw.luck = {w: math.exp(rng.gauss(0.0, spread)) for w in range(2, devices + 1)}
        draw.luck |= {w: 20.0 for w in range(2, devices + 1) if rng.random() < 0.1}
    return draw


class _Measured(_Draw):
    """Shapes of one application on one cluster, as it was measured there."""

    def __init__(self, rng: Random, devices: int) -> None:
        families = fitted()
        self.application, self.cluster = rng.choice(sorted(families))
        self.devices = devices

    def __call__(self, rng: Random, size: float) -> Shape:
        batch = BATCHES[self.application][int(math.log2(size))]
        family = fitted()[self.application, self.cluster]
        return shape_of(family.curve(batch, self.devices))[1]


def makespan(judge: Judge, policy: str, *, wide: bool = True, known: bool = False) -> float:
    """Simulated seconds under a policy, which learns costs on the way or knows them."""
    work = judge.workload
    studies = work.studies
    if not wide:
        studies = tuple(
            replace(each, spec=replace(each.spec, shards=1, max_width=1)) for each in studies
        )
    done = simulate(
        [study.spec for study in studies],
        simulated_devices(f"gpu:{judge.devices}"),
        SimulatedTraining(work),
        policy=policy,
        costs=KnownCosts(workload=work, resize=work.resize) if known else None,
        strategies=work.strategy,
        arrivals={study.spec.id: study.arrives for study in studies},
        enqueued=work.enqueued,
    )
    return done.makespan


def one(judge: Judge) -> dict[str, float]:
    """Simulated seconds: of waterfill, learning and knowing, and of each simple policy."""
    row = {
        f"{name}{'+wide' if wide else ''}": makespan(judge, name, wide=wide)
        for name, wide in SIMPLE
    }
    row["learned"] = makespan(judge, "waterfill")
    row["known"] = makespan(judge, "waterfill", known=True)
    return row
