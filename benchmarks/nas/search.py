"""Regularised evolution against random search after equal numbers of epochs, on published tables.

Whole studies by the real engine, its samplers and its runner, under simulated time on four devices.
Nothing is trained: a trial gets the result of one of the trainings of its architecture, drawn by
the study's seed and the trial's number, and takes as long in proportion. All are trained to the
end, so equal numbers of trials are equal numbers of epochs.

After n trials a study recommends the one with the best value. Its *regret* is the distance of the
mean of all trainings of this architecture from the best mean of the table. Evolution begins with
the trials that random search has with the same seed, as many as its population has.
``minus_random`` is the advantage of evolution's recommendation, as a mean over seeds; negative
where it loses. ``half`` is half of its 95 % interval. Scores are points of accuracy
(NAS-Bench-201), or about percent of the error (FCNet; ``tables``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random
from statistics import fmean
from typing import Any

from penstock.app.spec.space import parse_space
from penstock.extensions.simulation.simulator import simulate
from penstock.extensions.simulation.workload import STEPS_PER_EPOCH
from penstock.profiling.devices.device import Device
from penstock.scheduler.model.decisions import Dispatch
from penstock.scheduler.model.events import EpochReported, Proposed
from penstock.scheduler.model.study import Code, Params, StrategySpec, StudySpec, number_of

from ..lib.intervals import half_interval
from .tables import PUBLISHED, Table, missing

DEVICES, SEEDS = 4, 10
#: Trials after which recommendations are compared; the last one is a study's.
BUDGETS = (50, 100, 200, 400)
#: Options of evolution: as it is by default, with a population of 100, and as a short study wants.
EVOLUTIONS: dict[str, dict[str, Any]] = {
    "evolution": {},
    "evolution_20": {"population_size": 20, "sample_size": 5},
}
#: Simulated seconds of a training, on average.
SECONDS = 10.0


@dataclass(frozen=True)
class Trainings:
    """Trainings of a table's architectures, as the work of a simulation."""

    table: Table

    @cached_property
    def scale(self) -> float:
        """Simulated seconds of the table's unit."""
        return SECONDS / fmean(self.table.seconds.values())

    def epoch(self, dispatch: Dispatch, spec: StudySpec, epoch: int) -> tuple[float, float]:
        """The whole training, as one epoch."""
        key = self.table.key(dict(dispatch.params))
        value = Random(f"{spec.seed} {dispatch.number}").choice(self.table.scores[key])
        return self.scale * self.table.seconds[key], value

    def resize(self, dispatch: Dispatch, spec: StudySpec) -> float:
        """Nothing: no trial of these is resized."""
        return 0.0

    def steps(self, dispatch: Dispatch, spec: StudySpec) -> int:
        """As many for all."""
        return STEPS_PER_EPOCH

    def slowdown(self, at_work: int) -> float:
        """Devices have one slot."""
        return 1.0


def recommended(
    table: Table, sampler: str, seed: int, budgets: Sequence[int], **options: Any
) -> list[float]:
    """The regret after each of ``budgets`` trials of one study."""
    spec = StudySpec(
        id="search",
        name="search",
        contract="empty",
        code=Code("", "", ""),
        metric="score",
        direction="maximize",
        n_trials=budgets[-1],
        space=parse_space(table.space),
        sampler=sampler,
        sampler_options=json.dumps(options),
        strategy=StrategySpec("full", 1),
        seed=seed,
    )
    devices = [Device(f"cpu.s.{n}", "s", "cpu", (n,), None, 1) for n in range(DEVICES)]
    proposed, ended = list[Params](), list[tuple[float, int]]()
    for event in simulate([spec], devices, Trainings(table)).trace:
        if isinstance(event, Proposed):
            proposed += event.trials
        elif isinstance(event, EpochReported):
            ended.append((dict(event.metrics)["score"], number_of(event.trial)))
    found = []
    for budget in budgets:
        _, number = max(ended[:budget], key=lambda each: each[0])
        found.append(table.best - table.mean(table.key(dict(proposed[number]))))
    return found


def compared(table: Table, seeds: int, budgets: Sequence[int]) -> dict[str, float]:
    """The figures of one table."""
    sides: Mapping[str, tuple[str, dict[str, Any]]] = {
        "random": ("random", {}),
        **{name: ("evolution", options) for name, options in EVOLUTIONS.items()},
    }
    regrets = {
        name: [recommended(table, sampler, seed, budgets, **options) for seed in range(seeds)]
        for name, (sampler, options) in sides.items()
    }
    found: dict[str, float] = {}
    for at, budget in enumerate(budgets):
        for name, each in regrets.items():
            found[f"regret.{name}.{budget}"] = fmean(regret[at] for regret in each)
        for name in EVOLUTIONS:
            pairs = zip(regrets["random"], regrets[name], strict=True)
            gains = [random[at] - evolved[at] for random, evolved in pairs]
            found[f"{name}_minus_random.{budget}"] = fmean(gains)
            found[f"{name}_minus_random.{budget}.half"] = half_interval(gains)
            found[f"{name}_minus_random.{budget}.lost"] = sum(gain < 0 for gain in gains)
    return found


def search(*, quick: bool) -> dict[str, float]:
    """Evolution minus random on all tables, printed with intervals."""
    if lacking := missing():
        print(f"search is left out: {lacking}")
        return {}
    seeds, budgets = (2, (25, 50)) if quick else (SEEDS, BUDGETS)
    found: dict[str, float] = {}
    for name, published in PUBLISHED.items():
        for data in published.data[:1] if quick else published.data:
            figures = compared(published.read(data), seeds, budgets)
            for evolution in EVOLUTIONS:
                for budget in budgets:
                    mean = figures[f"{evolution}_minus_random.{budget}"]
                    half = figures[f"{evolution}_minus_random.{budget}.half"]
                    print(f"  {name} {data} {evolution} {budget}: {mean:+.2f} ± {half:.2f}")
            found |= {f"{name}.{data}.{key}": value for key, value in figures.items()}
    return found
