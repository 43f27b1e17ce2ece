"""Delay of a new study's first step while a trial with epochs of a minute runs, live.

The services are real and warm. With seats the new study takes turns with the long trial; without,
it waits for the end of the long trial's epoch, which then gives way. The times of submission are
drawn at random, the same for both.
"""

from __future__ import annotations

import random
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch
from penstock import FullBudget
from penstock.app.client.study.handle import StudyHandle
from penstock.app.client.study.study import Study
from penstock.app.host.settings import Settings
from penstock.app.ledger.reader import Reader
from penstock.app.spec.build import make_plan, new_id

from ..lib.studies import Steady, installation

#: Seconds of the long trial's epochs, and how many newcomers come.
EPOCH, QUICK_EPOCH = 60.0, 10.0
NEWCOMERS = {"seats": 15, "epoch_ends": 4}
QUICK_NEWCOMERS = {"seats": 3, "epoch_ends": 2}
#: Seconds of a step.
STEP = 0.05
#: Steps of a newcomer's only epoch.
SHORT = 20
PATIENCE = 300.0


class Timed(Steady):
    """A trial that records the time of its first step. A step takes ``rounds`` matrix products."""

    def loss(self, model: Any, batch: Any) -> Any:
        file = Path(self.params["file"])
        if not file.exists():
            file.write_text(repr(time.time()))
        if model.training:
            work(self.params["rounds"])
        return super().loss(model, batch)


def work(rounds: int) -> None:
    """Compute for a while."""
    square = torch.full((256, 256), 1 / 256)
    for _ in range(rounds):
        square = square @ square


def delays(*, quick: bool) -> dict[str, Any]:
    """Seconds from a study's submission to its first step, for each way."""
    epoch = QUICK_EPOCH if quick else EPOCH
    counts = QUICK_NEWCOMERS if quick else NEWCOMERS
    torch.set_num_threads(1)
    began = time.perf_counter()
    work(1000)
    rounds = max(1, round(1000 * STEP / (time.perf_counter() - began)))
    found = {
        name: _beside(devices, counts[name], rounds, epoch)
        for name, devices in (("seats", "cpu:1x1*1x4"), ("epoch_ends", "cpu:1x1"))
    }
    figures: dict[str, Any] = {}
    for name, seconds in found.items():
        figures |= {f"{name}.p50": median(seconds), f"{name}.max": max(seconds)}
    return figures | {
        "p50": figures["seats.p50"],
        "times_less": figures["epoch_ends.p50"] / figures["seats.p50"],
        "epoch_s": epoch,
        "each": found,
    }


def _beside(devices: str, count: int, rounds: int, epoch: float) -> list[float]:
    draw = random.Random(1)
    with installation(devices) as settings:
        long = settings.home / "long"
        space = {"steps": [round(epoch / STEP)], "file": [str(long)], "rounds": [rounds]}
        _submit(settings, "long", space, epochs=1000)
        _until(long.exists)
        reader, found = Reader(settings.ledger_url), []
        for i in range(count):
            time.sleep(draw.uniform(0.0, epoch / 4))
            file = settings.home / f"newcomer-{i}"
            began = time.time()
            space = {"steps": [SHORT], "file": [str(file)], "rounds": [rounds]}
            study = _submit(settings, f"newcomer-{i}", space, epochs=1)
            _until(lambda file=file: file.exists() and file.read_text())
            found.append(float(file.read_text()) - began)
            _until(lambda study=study: reader.study(study).finished_at is not None)
    return found


def _submit(settings: Settings, name: str, space: dict[str, list[Any]], epochs: int) -> str:
    """Submit a study of one trial; returns its id."""
    plan = make_plan(
        direction="minimize", metric="loss", sampler="grid", strategy=FullBudget(epochs)
    )
    study = Study(StudyHandle(plan, name, new_id(name), settings))
    study.submit(Timed, {"lr": [0.01], **space}, 1, devices=settings.devices)
    return study.id


def _until(holds: Any) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        if time.monotonic() > deadline:
            raise RuntimeError("a newcomer has not started")
        time.sleep(0.005)
