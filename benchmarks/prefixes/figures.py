"""Times of studies with common prefixes compared with the same studies without, in alternation."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median
from typing import Any

import penstock
import psutil
from penstock.app.host.locks import pid_of
from penstock.app.host.settings import Settings

from testkit.digits import SPACE
from testkit.results import summary

from ..lib.intervals import half_interval
from ..lib.studies import random_digits
from .studies import Grid, Ran, run, wrong

#: Trials and epochs of the study where nothing merges.
TRIALS, EPOCHS, DEVICES = 8, 40, 2


@dataclass(frozen=True)
class Pair:
    """One study, merged and alone."""

    merged: Ran
    alone: Ran

    @property
    def time(self) -> float:
        """Time of training each trial on its own, over that with merged prefixes."""
        return self.alone.seconds / self.merged.seconds

    @property
    def epochs(self) -> float:
        """Epochs that trials on their own train, over those with merged prefixes."""
        return self.alone.trained / self.merged.trained

    @property
    def wrong(self) -> int:
        return wrong(self.merged, self.alone)


def pairs(settings: Settings, grid: Grid, runs: int) -> list[Pair]:
    """``runs`` pairs, each with a seed of its own, so that trials are checked as often as usual."""
    found = []
    first = replace(grid, strategy=penstock.FullBudget(len(grid.rates)), piece=1)
    run(settings, first, runs, alone=True)  # trainers load the code and the data
    for seed in range(runs):
        both = {}
        for alone in (True, False) if seed % 2 else (False, True):
            both[alone] = run(settings, grid, seed, alone=alone)
        found.append(Pair(both[False], both[True]))
        print(f"  {both[True].seconds:.2f} s alone, {both[False].seconds:.2f} s merged", flush=True)
    return found


def figures_of(name: str, found: Sequence[Pair]) -> dict[str, Any]:
    """Medians over the pairs, and their sums of what is counted; printed, too."""
    figures = {
        "time": summary([pair.time for pair in found]),
        "epochs": median(pair.epochs for pair in found),
        "of_epochs": median(pair.time / pair.epochs for pair in found),
        "seconds": median(pair.merged.seconds for pair in found),
        "alone_seconds": median(pair.alone.seconds for pair in found),
        "trained": median(pair.merged.trained for pair in found),
        "alone_trained": median(pair.alone.trained for pair in found),
        "taken": sum(pair.merged.taken for pair in found),
        "mergeable": sum(pair.merged.mergeable for pair in found),
        "wrong": sum(pair.wrong for pair in found),
        "compared": sum(len(pair.merged.bits.keys() & pair.alone.bits.keys()) for pair in found),
    }
    print(name, *(f"{key} {value}" for key, value in figures.items()), sep="  ", flush=True)
    return {f"{name}.{key}": value for key, value in figures.items()}


def nothing_merges(settings: Settings, runs: int) -> dict[str, float]:
    """Return the costs of ``seeding="shared"`` for a study whose trials have nothing in common.

    They are relative to the same study under ``"trial"``. ``time`` is of the wall time, relative;
    ``scheduler_cpu`` is its CPU time, as a share of the devices' time. Each is the mean of the
    pairs and half of its interval.
    """
    _random(settings, "shared", runs)
    times, shares = [], []
    for seed in range(runs):
        found = {}
        for seeding in ("shared", "trial") if seed % 2 else ("trial", "shared"):
            found[seeding] = _random(settings, seeding, seed)
        (shared, shared_cpu), (plain, plain_cpu) = found["shared"], found["trial"]
        times.append(shared / plain - 1.0)
        shares.append((shared_cpu - plain_cpu) / (DEVICES * plain))
    figures = {}
    for name, each in (("time", times), ("scheduler_cpu", shares)):
        half = half_interval(each)
        figures |= {name: fmean(each), f"{name}.half_interval": half}
        print(f"nothing merges: {name} {fmean(each):+.3%} +- {half:.3%}", flush=True)
    return {f"nothing_merges.{name}": each for name, each in figures.items()}


def _random(settings: Settings, seeding: str, seed: int) -> tuple[float, float]:
    """Seconds of the study, and the scheduler's CPU seconds in them."""
    before = _scheduler_cpu(settings)
    began = time.perf_counter()
    space, full = SPACE | {"hidden": [64]}, penstock.FullBudget(EPOCHS)
    random_digits(settings, TRIALS, space, strategy=full, seed=seed, seeding=seeding)
    return time.perf_counter() - began, _scheduler_cpu(settings) - before


def _scheduler_cpu(settings: Settings) -> float:
    """The scheduler's CPU seconds up to now; 0 where it is not up."""
    pid = pid_of(settings.run, "scheduler")
    if pid is None:
        return 0.0
    used = psutil.Process(pid).cpu_times()
    return used.user + used.system
