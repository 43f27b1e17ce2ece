"""Overshoot of limits, and forecasts of missed deadlines: simulated.

    python -m benchmarks.limits --json FILE [--quick] [--studies N] [--seed TEXT]
    python -m benchmarks.limits --json FILE --live N    (``benchmarks.limits.live``)

Each instance is a random study on random devices: its strategy, the number of its trials, how long
they take. It runs once without a limit, and then with a limit of device-hours, of energy, of money
and with a deadline, each at a random share of what it took, once with ``stop`` and once with
take. It runs once without a limit, and then with a limit of device-hours, of energy, of money
and with a deadline, each at a random share of what it took, once with ``stop`` and once with
``finish_best``. Trials draw different powers, which scatter by epoch, and with a limit of money the
devices are of two kinds with different prices. The trace is replayed to find when the limit was
passed, to the second, with what open attempts had had by then; joules come with epochs. An epoch

Where epochs are short, the scheduler's message comes late. So each limit is tried once more with
epochs a hundredth as long, where no message to a running segment arrives at all (``unheard``): the
segments that are sent have to respect the limit themselves.

Whether missed deadlines of the studies without a limit are foretold is in ``foretold``.
The engine and its runner are the real ones, and nothing is known of epochs in advance.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from random import Random
from statistics import fmean
from typing import Protocol
from unittest.mock import patch

from penstock.app.extensions import PLUGS
from penstock.app.ledger.rows import EpochRow
from penstock.extensions.limits.limits import limits_of
from penstock.extensions.simulation.devices.transport import SimulatedTransport
from penstock.extensions.simulation.simulator import Simulated, simulate
from penstock.extensions.simulation.workload import (
    SimulatedTraining,
    StudyWork,
    TrialWork,
    Workload,
    study_spec,
)
from penstock.profiling.devices.device import Device
from penstock.scheduler.engine.engine import Engine
from penstock.scheduler.model.events import Event
from penstock.scheduler.model.study import HOUR, KWH, StrategySpec, StudySpec
from penstock.scheduler.model.trial import AcceptedEpoch
from penstock.scheduler.state.slot_time import slot_seconds
from penstock.scheduler.state.spending import charged

from .foretold import foretold, foretold_figures

STRATEGIES = (
    StrategySpec("full", max_epochs=27),
    StrategySpec("full", max_epochs=200),
    StrategySpec("asha", max_epochs=27),
    StrategySpec("halving", max_epochs=27),
    StrategySpec("hyperband", max_epochs=27),
    StrategySpec("median", max_epochs=27),
    StrategySpec("pbt", max_epochs=20, min_epochs=4),
)
#: Lanes and seats of a device.
SHAPES = ((1, 1), (1, 1), (2, 1), (1, 4))
LIMITS = ("device_hours", "kwh", "money", "deadline")
#: The prices of a device-hour where money is limited.
PRICES = {"cpu": 0.04, "cuda": 2.5}


class Ran(Protocol):
    """Events and accepted epochs of a study, simulated or not, in order."""

    @property
    def trace(self) -> Sequence[Event]: ...

    @property
    def epochs(self) -> Sequence[AcceptedEpoch | EpochRow]: ...


class Instance:
    """A random study, its devices, and how long it takes without a limit."""

    def __init__(self, seed: str, typical: float = 20.0) -> None:
        """``typical``: the median seconds of an epoch."""
        self.seed = seed
        self.rng = rng = Random(f"penstock limits {seed}")
        lanes, seats = rng.choice(SHAPES)
        self.devices = [
            Device(f"d{k}", "n", "cpu", (k,), None, lanes * seats, seats=seats, unmetered="")
            for k in range(rng.choice((1, 2, 3, 8, 16)))
        ]
        trials = rng.choice((4, 9, 27, 60))
        strategy = rng.choice(STRATEGIES)
        level = math.exp(rng.gauss(math.log(typical), 1.5))
        self.spec = study_spec(f"limits {seed}", trials, 1, strategy=strategy)
        work = tuple(self._trial(level) for _ in range(trials))
        self.workload = Workload("limits", (StudyWork(self.spec, work),), sharing=(1.3,))
        self.free = self.run(self.spec)

    def _trial(self, level: float) -> TrialWork:
        """A trial whose loss falls to a floor of its own, and whose epochs scatter a little."""
        level *= math.exp(self.rng.gauss(0.0, 0.4))
        floor, rate = self.rng.random(), self.rng.uniform(0.05, 0.5)
        levels = tuple(level * math.exp(self.rng.gauss(0.0, 0.03)) for _ in range(40))
        values = tuple(floor + math.exp(-rate * epoch) for epoch in range(1, 201))
        return TrialWork(level, ((1, 1.0),), levels=levels, values=values)

    def run(self, spec: StudySpec) -> Simulated:
        """The study under this specification."""
        devices, prices = self.devices, None
        if spec.money is not None:
            prices, kinds = PRICES, tuple(PRICES)
            devices = [replace(each, kind=kinds[k % 2]) for k, each in enumerate(devices)]
        work = SimulatedTraining(self.workload)
        return simulate([spec], devices, work, watts=self.watts, prices=prices)

    def watts(self, trial: str, epoch: int) -> float:
        """Return the power of a device in an epoch of a trial: by trial, and a little by epoch."""
        of_trial = Random(f"{self.seed} {trial}").gauss(math.log(40.0), 0.4)
        return math.exp(of_trial + Random(f"{self.seed} {trial} {epoch}").gauss(0.0, 0.1))

    def limited(self, limit: str, at_limit: str) -> StudySpec:
        """The study with a limit at a random share of what it took without one."""
        share = self.rng.uniform(0.05, 0.95)
        return replace(self.spec, **{limit: share * self._took(limit), "at_limit": at_limit})

    def _took(self, limit: str) -> float:
        """Return the amount that the study used without a limit, as far as its epochs tell."""
        if limit == "deadline":
            return self.free.makespan
        if limit == "kwh":
            return sum(row.joules or 0.0 for row in self.free.epochs) / KWH
        hours = sum(row.at - row.begin for row in self.free.epochs) / HOUR
        return hours * (fmean(PRICES.values()) if limit == "money" else 1.0)


@contextmanager
def unheard() -> Iterator[None]:
    """No word reaches a segment that runs."""
    with patch.object(SimulatedTransport, "_cut", lambda transport, cut: None):
        yield


def passed(done: Ran, spec: StudySpec) -> tuple[float, str]:
    """When the study passed its limit (seconds), and which trial then went on, if any did.

    Infinite if it never did.
    """
    engine, before = Engine(plugs=PLUGS), (0.0, 0.0)
    passed_at, finishes = math.inf, ""
    for event in done.trace:
        engine.handle(event)
        study = engine.state.studies.get(spec.id)
        if study is None:
            continue
        finishes = study.finishes or finishes
        if passed_at < math.inf:
            continue
        spent = study.spent
        for attempt in engine.state.attempts.values():
            had = slot_seconds(attempt, event.at)
            spent = charged(engine.state, spent, replace(attempt), had)
        [limit] = limits_of(spec, spent, study.created_at, event.at)
        now = (event.at, limit.used)
        if limit.used >= limit.most:
            # Between two events devices are held at a constant rate. Joules come with an epoch.
            part = (limit.most - before[1]) / (now[1] - before[1]) if spec.kwh is None else 1.0
            passed_at = before[0] + part * (now[0] - before[0])
        before = now
    return passed_at, finishes


def overshoots(done: Ran, spec: StudySpec, begin: float = 0.0) -> list[int]:
    """Of each trial of a study that began at ``begin``, how many epochs ended after the limit."""
    at, finishes = passed(done, spec)
    at += 1e-9 * (at - begin) + 1e-6  # whatever was rounded
    late = Counter(row.trial for row in done.epochs if row.at > at and row.trial != finishes)
    return list(late.values())


def _late(instances: Sequence[Instance]) -> tuple[dict[str, list[int]], int]:
    """The overshoots by limit and what happens there, and in how many runs there were any."""
    late: dict[str, list[int]] = {}
    reached = 0
    for instance in instances:
        for limit in LIMITS:
            for at_limit in ("stop", "finish_best"):
                spec = instance.limited(limit, at_limit)
                found = overshoots(instance.run(spec), spec)
                reached += bool(found)
                late.setdefault(f"{limit}.{at_limit}", []).extend(found)
    return late, reached


def figures_of(seeds: Sequence[str]) -> dict[str, float]:
    """All figures over the instances of these seeds."""
    instances = [Instance(seed) for seed in seeds]
    late, reached = _late(instances)
    with unheard():
        short, _ = _late([Instance(seed, typical=0.2) for seed in seeds])
    figures: dict[str, float] = {
        "studies": len(seeds),
        "runs": len(seeds) * len(LIMITS) * 2,
        "runs_with_an_epoch_under_way": reached,
        "overshoot_epochs.max": max(chain(*late.values()), default=0),
        "overshoot_epochs.unheard.max": max(chain(*short.values()), default=0),
    }
    figures |= foretold_figures(
        [
            row
            for each in instances
            for row in foretold(each.free.trace, each.spec, 0.0, each.free.makespan, each.rng)
        ]
    )
    return figures | {
        f"overshoot_epochs.{name}.max": max(found, default=0) for name, found in late.items()
    }
