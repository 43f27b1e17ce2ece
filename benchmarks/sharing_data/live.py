"""Whole studies on real workers: batches that two trainers read once, and each trial for itself.

The space, the seed and the work are one; where each reads for itself, ``data()`` reads what differs
in each trial. One installation has two devices of one core and runs both in turn, warm: a first
study has loaded the code and its imports. A study's time is from before it is created until the
call that runs it returns. Its trainers know nothing of its batches before.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

import penstock
from penstock.app.host.settings import Settings
from penstock.app.ledger.reader import Reader
from penstock.scheduler.model.events import EpochReported
from penstock.scheduler.model.study import StrategySpec, number_of

from testkit.results import summary
from testkit.shared_reading import (
    ReadPlain,
    ReadPlainApart,
    ReadSingly,
    ReadSinglyApart,
    ReadThrice,
    ReadThriceApart,
)

from ..lib.studies import installation

DEVICES = "cpu:2x1"
SPACE = {"lr": penstock.Float(1e-4, 1e-2, log=True)}


@dataclass(frozen=True)
class Case:
    """A study of ``trials`` trials, of code whose batches are read once, and of its like."""

    once: type
    apart: type
    strategy: StrategySpec
    trials: int


CASES = {
    "full": Case(ReadThrice, ReadThriceApart, penstock.FullBudget(10), 8),
    "asha": Case(ReadThrice, ReadThriceApart, penstock.ASHA(min_epochs=1, max_epochs=9), 18),
    "one_trial": Case(ReadThrice, ReadThriceApart, penstock.FullBudget(20), 1),
    "fast": Case(ReadSingly, ReadSinglyApart, penstock.FullBudget(10), 8),
    "plain": Case(ReadPlain, ReadPlainApart, penstock.FullBudget(40), 8),
}


@dataclass(frozen=True)
class Ran:
    """A study that ran: seconds, state hash and metrics by trial and epoch, epochs with company."""

    seconds: float
    bits: Mapping[tuple[int, int], tuple[str, Any]]
    shared: int


def live(runs: int) -> dict[str, Any]:
    """Medians of ``runs`` pairs a case, and how many epochs of both have other bits."""
    found: dict[str, Any] = {}
    with installation(DEVICES) as settings:
        for code in (ReadThrice, ReadThriceApart):
            _study(settings, code, penstock.FullBudget(2), 4, 1000)
        for name, case in CASES.items():
            found |= {f"{name}.{figure}": value for figure, value in _pairs(settings, case, runs)}
            print(f"  {name}: {found[f'{name}.ratio']['median']:.2f}", flush=True)
    return found


def _pairs(settings: Settings, case: Case, runs: int) -> list[tuple[str, Any]]:
    pairs = []
    for seed in range(runs):
        sides = (case.once, case.apart) if seed % 2 else (case.apart, case.once)
        ran = {code: _study(settings, code, case.strategy, case.trials, seed) for code in sides}
        pairs.append((ran[case.once], ran[case.apart]))
    ratios = [apart.seconds / once.seconds for once, apart in pairs]
    return [
        ("ratio", summary(ratios)),
        ("once_s", median(once.seconds for once, _ in pairs)),
        ("apart_s", median(apart.seconds for _, apart in pairs)),
        ("epochs_once", sum(len(once.bits) for once, _ in pairs)),
        ("epochs_apart", sum(len(apart.bits) for _, apart in pairs)),
        ("epochs_shared", sum(once.shared for once, _ in pairs)),
        ("mismatches", sum(_differing(*pair) for pair in pairs)),
    ]


def _study(settings: Settings, code: type, strategy: StrategySpec, trials: int, seed: int) -> Ran:
    began = time.perf_counter()
    study = penstock.create_study(
        metric="accuracy",
        direction="maximize",
        sampler="random",
        strategy=strategy,
        seed=seed,
        seeding="shared",
    )
    study.optimize(code, SPACE, trials, show_progress=False, devices=settings.devices)
    seconds = time.perf_counter() - began
    reader = Reader(settings.ledger_url)
    reports = [event for _, event in reader.of_trials(study.id, EpochReported)]
    rows = reader.epochs(study.id)
    bits = {(number_of(row.trial), row.epoch): (row.state_hash, row.metrics) for row in rows}
    return Ran(seconds, bits, sum(event.readers > 1 for event in reports))


def _differing(once: Ran, apart: Ran) -> int:
    """ASHA may train other epochs on each side: those of both are compared."""
    both = once.bits.keys() & apart.bits.keys()
    return sum(once.bits[key] != apart.bits[key] for key in both)
