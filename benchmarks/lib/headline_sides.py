"""The sides of ``benchmarks.headline`` that are Penstock's, and how any side is run.

A side of Penstock is an installation of its own, with two devices of one core. ``fifo`` has one
trial a device and merges nothing, ``avoided`` takes over common prefixes, ``density`` has seats
besides, in which trials are trained together, and ``everything`` has the default policy as well.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import penstock
import torch
from penstock.app.host.settings import Settings
from penstock.app.ledger.reader import Reader
from torch import nn
from torch.utils.data import TensorDataset

from ..peers import _headline_work as work
from .plans import policy
from .studies import installation

PEERS = Path(__file__).parents[1] / "peers"
PYTHON = PEERS.parent.parent / ".venv-peers" / "bin" / "python"
PLAIN, SEATED = "cpu:2x1", "cpu:2x1*1x32"
#: (case, seed)
Job = tuple[str, int]
#: (seconds, accuracy) of each epoch.
Curve = list[tuple[float, float]]
#: (hash, metrics) by (configuration, epoch).
Bits = Mapping[tuple[Any, int], tuple[str, Any]]


@dataclass(frozen=True)
class Ran:
    """A study that ran: seconds in all, (seconds, accuracy) of each epoch, and Penstock's bits."""

    seconds: float
    curve: Curve
    bits: Bits
    #: Epochs that were taken over.
    taken: int = 0
    #: Seconds of the epochs of the trial that has most of them: one after the other, on any device.
    longest: float = 0.0

    @property
    def best(self) -> float:
        """The highest accuracy of any epoch."""
        return max(accuracy for _, accuracy in self.curve)

    def reaches(self, accuracy: float) -> float:
        """Return the seconds to the first epoch with this accuracy or more."""
        return next(at for at, each in self.curve if each >= accuracy)


class Trial(penstock.TorchTrainable):
    """A case of ``_headline_work``, for Penstock's loop."""

    batch_size = work.BATCH

    def data(self) -> penstock.Data:
        inputs, labels, judged, answers = work.data(self.params["case"])
        return penstock.Data(TensorDataset(inputs, labels), TensorDataset(judged, answers))

    def model(self) -> nn.Module:
        return work.network(self.params["case"])

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(
            model.parameters(),
            lr=self.now("lr"),
            momentum=work.MOMENTUM,
            weight_decay=self.params["decay"],
        )

    def loss(self, model: nn.Module, batch: Any) -> torch.Tensor:
        inputs, labels = batch
        return nn.functional.cross_entropy(model(inputs), labels)

    def metrics(self, model: nn.Module, batch: Any) -> dict[str, torch.Tensor]:
        inputs, labels = batch
        return {"accuracy": (model(inputs).argmax(1) == labels).float().mean()}


@dataclass(frozen=True)
class Side:
    """Settings with which Penstock runs the studies."""

    devices: str
    policy: str
    merges: bool
    fuse: str

    def run(self, jobs: list[Job]) -> list[Ran]:
        """Each job's study, in this order, on services of their own."""
        found = []
        with policy(self.policy), installation(self.devices) as settings:
            for case, seed in jobs:
                chosen = work.points(seed)
                self._study(settings, case, seed, chosen[:4], 2)  # code and data are loaded
                found.append(self._study(settings, case, seed, chosen, work.EPOCHS))
        return found

    def _study(
        self, settings: Settings, case: str, seed: int, chosen: list[work.Point], epochs: int
    ) -> Ran:
        began = time.time()
        study = penstock.create_study(
            metric="accuracy",
            direction="maximize",
            sampler="random",
            strategy=penstock.ASHA(max_epochs=epochs, eta=work.ETA),
            seed=seed,
            seeding="shared",
            fuse=self.fuse,
            # Where machines may differ, nothing is taken over.
            resources=penstock.Resources(on_signature_change="refuse" if self.merges else "record"),
        )
        pieces = {n * work.PIECE: list(rates) for n, rates in enumerate(work.RATES)}
        pieces = {begin: rates for begin, rates in pieces.items() if begin < epochs}
        for point in chosen:
            lrs = {
                f"lr@{begin}" if begin else "lr": point[f"lr{begin // work.PIECE}"]
                for begin in pieces
            }
            study.enqueue_trial({**lrs, "decay": point["decay"]})
        space = {"lr": penstock.Steps(pieces), "decay": list(work.DECAYS), "case": [case]}
        study.optimize(Trial, space, len(chosen), show_progress=False, devices=settings.devices)
        seconds = time.time() - began
        reader = Reader(settings.ledger_url)
        params = {row.id: tuple(sorted(row.params.items())) for row in reader.trials(study.id)}
        rows = reader.epochs(study.id)
        seconds_of = defaultdict[str, float](float)
        for row in rows:
            seconds_of[row.trial] += row.seconds
        return Ran(
            seconds,
            sorted((row.at - began, row.metrics["accuracy"]) for row in rows),
            {(params[row.trial], row.epoch): (row.state_hash, row.metrics) for row in rows},
            sum(bool(row.taken_from) for row in rows),
            max(seconds_of.values()),
        )


SIDES = {
    "fifo": Side(PLAIN, "fifo", False, "off"),
    "avoided": Side(PLAIN, "fifo", True, "off"),
    "density": Side(SEATED, "fifo", True, "auto"),
    "everything": Side(SEATED, "waterfill", True, "auto"),
}
#: The peers' scripts, and the Python that runs each.
SCRIPTS = {"optuna": sys.executable, "ray": str(PYTHON)}


def run(side: str, jobs: list[Job]) -> list[Ran]:
    """Each job's study by ``side``, in this order."""
    if side in SIDES:
        return SIDES[side].run(jobs)
    return [Ran(seconds, curve, {}) for seconds, curve in scripted("headline", side, jobs)]


def scripted(benchmark: str, side: str, jobs: list[Job]) -> list[tuple[float, Curve]]:
    """Run each job's study by a peer's script; return its seconds, and those of its epochs."""
    with tempfile.TemporaryDirectory() as folder:
        plan, out = Path(folder) / "plan.json", Path(folder) / "out.json"
        plan.write_text(json.dumps(jobs))
        subprocess.run(
            [SCRIPTS[side], str(PEERS / f"{benchmark}_{side}.py"), str(plan), str(out)],
            cwd=folder,
            check=True,
            stdout=subprocess.DEVNULL,
            env=os.environ | {"OMP_NUM_THREADS": "1", "HEADLINE_DIGITS": str(work.digits_file())},
        )
        done = json.loads(out.read_text())
    return [(ran["seconds"], [(at, accuracy) for at, accuracy in ran["curve"]]) for ran in done]


def differing(one: Bits, other: Bits) -> tuple[int, int]:
    """Return the number of epochs that differ, and of all that both have."""
    both = one.keys() & other.keys()
    return sum(one[place] != other[place] for place in both), len(both)
