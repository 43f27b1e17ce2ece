"""Whole studies on real workers: trials trained together in lanes, and one trial a device.

The code, the space and the seed are one. Each side is an installation of its own with two devices
of one core, warm: a first study has loaded code and data, and begun the admission, of which the
times with the most trials are taken in the study that is timed. Its time is from before the study
is created until the call that runs it returns.
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
from penstock.scheduler.model.study import number_of

from testkit.results import summary

from ..lib.studies import installation, random_digits

SEATED, PLAIN = "cpu:2x1*1x32", "cpu:2x1"
TRIALS, EPOCHS, FIRST = 160, 9, 24
SPACE = {
    "hidden": [32],
    "dropout": [0.0],
    "batch_size": [64],
    "lr": penstock.Float(0.01, 0.5, log=True),
}


@dataclass(frozen=True)
class Ran:
    """A study that ran: seconds, state hash and metrics by trial and epoch, mean company."""

    seconds: float
    bits: Mapping[tuple[int, int], tuple[str, Any]]
    together: float


def live(runs: int) -> dict[str, Any]:
    """Medians of ``runs`` pairs, in alternation, and how many epochs have other bits."""
    pairs = []
    for seed in range(runs):
        sides = (SEATED, PLAIN) if seed % 2 else (PLAIN, SEATED)
        found = {devices: _side(devices, seed) for devices in sides}
        pairs.append((found[SEATED], found[PLAIN]))
        print(
            f"  live: {found[PLAIN].seconds:.2f} s alone, {found[SEATED].seconds:.2f} s together"
            f" ({found[SEATED].together:.1f} at once)",
            flush=True,
        )
    ratios = [plain.seconds / seated.seconds for seated, plain in pairs]
    return {
        "live": summary(ratios),
        "live.together_s": median(seated.seconds for seated, _ in pairs),
        "live.alone_s": median(plain.seconds for _, plain in pairs),
        "live.at_once": median(seated.together for seated, _ in pairs),
        "live.epochs": sum(len(plain.bits) for _, plain in pairs),
        "live.mismatches": sum(_differing(*pair) for pair in pairs),
    }


def _side(devices: str, seed: int) -> Ran:
    with installation(devices) as settings:
        _study(settings, FIRST, 1000 + seed)
        return _study(settings, TRIALS, seed)


def _study(settings: Settings, trials: int, seed: int) -> Ran:
    began = time.perf_counter()
    study = random_digits(settings, trials, SPACE, strategy=penstock.FullBudget(EPOCHS), seed=seed)
    seconds = time.perf_counter() - began
    reader = Reader(settings.ledger_url)
    company = [event.together for _, event in reader.of_trials(study, EpochReported)]
    rows = reader.epochs(study)
    bits = {(number_of(row.trial), row.epoch): (row.state_hash, row.metrics) for row in rows}
    return Ran(seconds, bits, sum(company) / len(company))


def _differing(seated: Ran, plain: Ran) -> int:
    keys = seated.bits.keys() | plain.bits.keys()
    return sum(seated.bits.get(key) != plain.bits.get(key) for key in keys)
