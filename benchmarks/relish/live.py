"""Twelve live jobs of Philly's spread on one device, compared with the simulator's forecast.

Each job is a study of one trial of a small net, by a real scheduler, broker, Celery worker and
trainer. A step of its training is a real one that then sleeps until it has lasted as long as the
table of seconds says, as one on a GPU leaves the CPU idle. So the same table holds for the live
jobs, whatever the load of the machine, and for the simulation. All other costs are real and count:
submission, sampler, dispatch, data and model of every trial, backward passes, evaluation, reports,
commits, giving way and going on. Trainer and worker are up before the first job, and stay so.

A job's completion time begins when it should arrive, so a late submission counts, too.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import fmean
from typing import Any, NamedTuple

import penstock
import torch
from penstock.app.ledger.reader import Reader
from torch import nn
from torch.utils.data import TensorDataset

from ..lib.plans import policy
from ..lib.studies import installation
from .philly import MEAN, QueueJob, philly_jobs

JOBS, EPOCHS, STEPS = 12, 9, 4
#: The mean running time of a live job (seconds), and the load that they arrive with.
LIVE_MEAN, LOAD = 6.0, 0.9
POLICIES = ("fifo", "srtf")
DEVICES = "cpu:1x1"


class Timed(penstock.TorchTrainable):
    """A small net whose epochs last for ``seconds``, but for what follows a step's forward pass."""

    batch_size = 32

    def data(self) -> penstock.Data:
        made = torch.Generator().manual_seed(0)
        pixels = torch.randn(self.batch_size * STEPS, 64, generator=made)
        labels = torch.randint(0, 10, (len(pixels),), generator=made)
        return penstock.Data(
            train=TensorDataset(pixels, labels),
            validation=TensorDataset(pixels[:32], labels[:32]),
        )

    def model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), lr=0.01)

    def loss(self, model: nn.Module, batch: Any) -> torch.Tensor:
        until = time.perf_counter() + self.params["seconds"] / STEPS
        pixels, labels = batch
        loss = nn.functional.cross_entropy(model(pixels), labels)
        time.sleep(max(0.0, until - time.perf_counter()))
        return loss

    def metrics(self, model: nn.Module, batch: Any) -> dict[str, torch.Tensor]:
        pixels, labels = batch
        return {"loss": nn.functional.cross_entropy(model(pixels), labels)}


def live_jobs(seed: int) -> list[QueueJob]:
    """The jobs of a draw, scaled to ``LIVE_MEAN`` seconds."""
    scale = LIVE_MEAN / MEAN
    drawn = philly_jobs(JOBS, LOAD, 0.90, seed)
    return [QueueJob(scale * job.arrives, scale * job.seconds) for job in drawn]


@contextmanager
def _staying_up() -> Iterator[None]:
    """Services started in the block do not stop in the minutes between two bursts."""
    os.environ["PENSTOCK_IDLE_STOP"] = "3600"
    try:
        yield
    finally:
        del os.environ["PENSTOCK_IDLE_STOP"]


def _submit(name: str, seconds: float, epochs: int) -> Any:
    study = penstock.create_study(
        study_name=name, metric="loss", sampler="grid", strategy=penstock.FullBudget(epochs)
    )
    study.submit(Timed, space={"seconds": [seconds]}, devices=DEVICES)
    return study


class LiveRun(NamedTuple):
    """Figures of the live jobs: their mean completion time, and their measured training time.

    ``trained`` is relative to the table's seconds: it is above 1 if steps lasted longer.
    """

    completion: float
    trained: float


def live_run(jobs: list[QueueJob], rule: str) -> LiveRun:
    """Run the live ``jobs`` under a policy."""
    with policy(rule), _staying_up(), installation(DEVICES) as settings:
        _submit("warm", 0.1, 2).wait(60)
        began, studies = time.time(), []
        for number, job in enumerate(jobs):
            time.sleep(max(0.0, began + job.arrives - time.time()))
            studies.append(_submit(f"job-{number}", job.seconds / EPOCHS, EPOCHS))
        for study in studies:
            study.wait(600)
        reader = Reader(settings.ledger_url)
        epochs = [reader.epochs(study.id) for study in studies]
    ends = [rows[EPOCHS - 1].at - began for rows in epochs]
    trained = sum(row.seconds for rows in epochs for row in rows)
    return LiveRun(
        fmean(end - job.arrives for end, job in zip(ends, jobs, strict=True)),
        trained / sum(job.seconds for job in jobs),
    )
