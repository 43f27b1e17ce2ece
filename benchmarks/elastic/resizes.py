"""Resizes as they happen: a trial on real Celery workers whose width changes after every epoch.

The training code itself notes when its steps end and begin, on the clock that all processes of a
machine share. A resize is the time from the end of the last step at one width to the moment when
every member begins its first step at the next: the state's hash, the report, the scheduler's
commit, dispatch, claims, the rendezvous and the transfer of the state included. Evaluation is
the trial's own work at any width: here its metric costs nothing.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import penstock
import torch
from penstock.app.host.settings import Settings
from penstock.app.ledger.reader import Reader
from penstock.app.ledger.rows import EpochRow
from torch import nn
from torch.utils.data import TensorDataset

from testkit.random_widths import RANDOM_WIDTHS

from ..lib.studies import installation

STEPS = 3
BATCH = 32


class Sized(penstock.TorchTrainable):
    """A network whose weights and momentum are ``mb`` megabytes, and three small steps an epoch."""

    batch_size = BATCH

    def data(self) -> penstock.Data:
        made = torch.Generator().manual_seed(0)
        x = torch.randn(STEPS * BATCH, 64, generator=made)
        y = torch.randint(0, 10, (len(x),), generator=made)
        return penstock.Data(TensorDataset(x, y), TensorDataset(x[:8], y[:8]))

    def model(self) -> nn.Module:
        self._steps, self._begun = 0, False
        wide = hidden(self.params["mb"])
        return nn.Sequential(
            nn.Linear(64, wide), nn.ReLU(), nn.Linear(wide, wide), nn.ReLU(), nn.Linear(wide, 10)
        )

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
        optimizer.register_step_post_hook(self._stepped)
        return optimizer

    def _stepped(self, *_: Any) -> None:
        if not self._begun:
            return
        self._steps += 1
        if self._steps == STEPS:
            self._note("last")
            self._steps, self._begun = 0, False

    def loss(self, model: nn.Module, batch: Any) -> torch.Tensor:
        x, y = batch
        traced = type(x) is not torch.Tensor  # its memory is estimated
        if torch.is_grad_enabled() and not self._begun and not traced:
            self._note("first")
            self._begun = True
        return nn.functional.cross_entropy(model(x), y)

    def metrics(self, model: nn.Module, batch: Any) -> dict[str, torch.Tensor]:
        return {"loss": torch.zeros(())}

    def _note(self, what: str) -> None:
        """A line a trainer: what, and when (seconds of the machine's clock)."""
        with (Path(self.params["log"]) / str(os.getpid())).open("a") as file:
            file.write(json.dumps([what, time.monotonic()]) + "\n")


def hidden(mb: float) -> int:
    """Of ``Sized``'s middle layer: parameters and momentum of 4 bytes each are ``mb`` x 10^6."""
    count = mb * 1e6 / 8
    return int((-(64 + 10 + 2) + ((64 + 10 + 2) ** 2 + 4 * count) ** 0.5) / 2)


def resizes(mb: float, wanted: int, colds: int) -> dict[str, float]:
    """At least ``wanted`` resizes of warm trials between one and two devices (milliseconds).

    At least ``colds`` wide epochs find a trainer that never had the trial.
    """
    spans: dict[str, list[float]] = defaultdict(list)
    os.environ["PENSTOCK_POLICY"] = RANDOM_WIDTHS
    try:
        with installation("cpu:2x1") as settings:
            while len(spans["resize"]) < wanted or len(spans["cold"]) < colds:
                _run(settings, mb, wanted, spans)
    finally:
        del os.environ["PENSTOCK_POLICY"]
    label = f"{mb:g}"
    return {
        f"resize_ms.{label}.p50": median(spans["resize"]),
        f"resize_ms.{label}.p99": _p99(spans["resize"]),
        f"resizes.{label}": len(spans["resize"]),
        f"cold_resize_ms.{label}.p50": median(spans["cold"]),
        f"same_width_ms.{label}.p50": median(spans["same"]),
        f"memcpy_ms.{label}": memcpy_ms(mb),
    }


def _run(settings: Settings, mb: float, epochs: int, spans: dict[str, list[float]]) -> None:
    """Run one trial of ``epochs`` epochs and add the gaps between them to ``spans``, by kind."""
    log = Path(tempfile.mkdtemp(dir=settings.home))
    strategy = penstock.FullBudget(epochs)
    both = penstock.Resources(max_width=2, shards=2)
    study = penstock.create_study(metric="loss", sampler="grid", strategy=strategy, resources=both)
    space = {"mb": [mb], "log": [str(log)]}
    study.optimize(Sized, space, show_progress=False, devices="cpu:2x1")
    for kind, seconds in _spans(Reader(settings.ledger_url).epochs(study.id), log):
        spans[kind].append(seconds * 1e3)


def _spans(rows: list[EpochRow], log: Path) -> list[tuple[str, float]]:
    """(kind, seconds) between every two epochs: ``resize``, ``same`` or ``cold``.

    Cold: a process takes part that has never had the trial.
    """
    marks: dict[str, list[tuple[float, int]]] = {"first": [], "last": []}
    for file in log.iterdir():
        for line in file.read_text().splitlines():
            what, at = json.loads(line)
            marks[what].append((at, int(file.name)))
    # Epochs follow each other, so their times order them: every member notes each epoch once.
    begins, ends = [], []
    for taken, noted in ((begins, sorted(marks["first"])), (ends, sorted(marks["last"]))):
        for row in rows:
            taken.append(noted[: row.width])
            del noted[: row.width]
        assert not noted, "an epoch was trained that is not in the ledger"
    found = []
    known: set[int] = set()
    for number, (row, began) in enumerate(zip(rows, begins, strict=True)):
        members = {pid for _, pid in began}
        if number:
            kind = "same" if row.width == rows[number - 1].width else "resize"
            kind = "cold" if members - known else kind
            found.append((kind, max(began)[0] - max(ends[number - 1])[0]))
        known |= members
    return found


def memcpy_ms(mb: float, runs: int = 21) -> float:
    """Return the milliseconds of one warm copy of ``mb`` megabytes from memory to memory."""
    source = torch.ones(int(mb * 1e6), dtype=torch.uint8)
    target = torch.empty_like(source).fill_(0)
    spans = []
    for _ in range(runs):
        began = time.perf_counter()
        target.copy_(source)
        spans.append((time.perf_counter() - began) * 1e3)
    return median(spans)


def _p99(values: list[float]) -> float:
    return quantiles(values, n=100, method="inclusive")[98] if len(values) > 1 else values[0]
