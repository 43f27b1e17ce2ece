"""Studies whose trials have epochs in common: merged, and with each trial training its own.

``alone`` is the same study with ``on_signature_change="record"``: where machines may differ nothing
is taken over, and the bits are the same. A grid has three pieces of three learning rates; trained
in full for 30 epochs it has 810 epochs, of which 390 are distinct.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import penstock
from penstock.app.host.settings import Settings
from penstock.app.ledger import codec
from penstock.app.ledger.reader import Reader
from penstock.extensions.prefixes.chain import chain_of, link_at
from penstock.scheduler.model.study import StrategySpec
from penstock.scheduler.model.trial import Trial

from testkit.data import mnist_is_here
from testkit.digits import SteppedNet

from ..lib.lenet import LeNet

#: Epochs of a piece.
PIECE = 10
RATES = ((0.1, 0.05, 0.02), (0.05, 0.02, 0.01), (0.01, 0.005, 0.001))
FOURTH = (0.002, 0.001, 0.0005)
#: Examples of a step on digits.
BATCH = 32
#: MNIST's images that a trial has.
IMAGES = 300


@dataclass(frozen=True)
class Grid:
    """A study of all schedules: ``code`` under ``strategy``, with ``others`` in its space."""

    code: Any
    strategy: StrategySpec
    others: Mapping[str, Any]
    piece: int = PIECE
    rates: tuple[tuple[float, ...], ...] = RATES

    @property
    def space(self) -> dict[str, Any]:
        pieces = {self.piece * number: list(rates) for number, rates in enumerate(self.rates)}
        return {"lr": penstock.Steps(pieces), **self.others}

    @property
    def n_trials(self) -> int:
        return prod(map(len, self.rates))


@dataclass(frozen=True)
class Ran:
    """A study that ran.

    ``bits`` are hash and metrics by configuration and epoch. ``mergeable`` is how many of the
    epochs are another trial's, too, beyond the first trial that has it.
    """

    seconds: float
    bits: Mapping[tuple[Any, int], tuple[str, Any]]
    trained: int
    taken: int
    mergeable: int


def grids() -> dict[str, Grid]:
    """By name; MNIST's is left out, with a word, where its files are not here."""
    full = penstock.FullBudget(3 * PIECE)
    digits = {"hidden": [64], "dropout": [0.2], "batch_size": [BATCH]}
    asha = penstock.ASHA(max_epochs=27, eta=3)
    half, four = penstock.FullBudget(2 * PIECE), (*RATES, FOURTH)
    found = {
        "digits": Grid(SteppedNet, full, digits),
        "asha": Grid(SteppedNet, asha, digits, 9),
        "four": Grid(SteppedNet, half, digits, PIECE // 2, four),
    }
    if mnist_is_here():
        others = {"momentum": [0.9], "examples": [IMAGES], "batch_size": [64]}
        found["mnist"] = Grid(LeNet, full, others)
    return found


def run(settings: Settings, grid: Grid, seed: int, *, alone: bool) -> Ran:
    """Have the study run on the devices of ``settings``.

    Its time is from before it is created until the call that runs it returns.
    """
    began = time.perf_counter()
    study = penstock.create_study(
        metric="accuracy",
        direction="maximize",
        sampler="grid",
        strategy=grid.strategy,
        seed=seed,
        seeding="shared",
        resources=penstock.Resources(on_signature_change="record" if alone else "refuse"),
    )
    study.optimize(
        grid.code, grid.space, grid.n_trials, show_progress=False, devices=settings.devices
    )
    return read(settings, study.id, time.perf_counter() - began)


def read(settings: Settings, study: str, seconds: float) -> Ran:
    """Return the ledger's facts about a study that took ``seconds``."""
    reader = Reader(settings.ledger_url)
    spec = codec.spec_from_json(reader.study(study).spec_json)
    trials = {
        row.id: Trial(row.id, study, row.number, tuple(row.params.items()), row.created_at)
        for row in reader.trials(study)
    }
    chains = {name: chain_of(spec, trial) for name, trial in trials.items()}
    rows = reader.epochs(study)
    edges = {(link_at(chains[row.trial], row.epoch), row.epoch) for row in rows}
    taken = sum(bool(row.taken_from) for row in rows)
    return Ran(
        seconds,
        {(trials[r.trial].params, r.epoch): (r.state_hash, r.metrics) for r in rows},
        trained=len(rows) - taken,
        taken=taken,
        mergeable=len(rows) - len(edges),
    )


def wrong(merged: Ran, alone: Ran) -> int:
    """Return the number of epochs that both have and that differ."""
    both = merged.bits.keys() & alone.bits.keys()
    return sum(merged.bits[place] != alone.bits[place] for place in both)
