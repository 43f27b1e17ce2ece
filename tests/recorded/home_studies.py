"""The studies in the recorded state folders, as a user of version 0.1 wrote them.

python home_studies.py STUDY
"""

from __future__ import annotations

import sys
import time

import penstock
import torch
from torch import nn
from torch.utils.data import TensorDataset

SPACE = {"lr": penstock.Float(1e-3, 1e-1, log=True)}


class Net(penstock.TorchTrainable):
    """Points in four dimensions, labelled by the sign of their sum."""

    batch_size = 64

    def data(self) -> penstock.Data:
        x = torch.randn(256, 4, generator=torch.Generator().manual_seed(1))
        data = TensorDataset(x, (x.sum(1) > 0).long())
        return penstock.Data(data, data)

    def model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), lr=self.params["lr"])

    def loss(self, model: nn.Module, batch) -> torch.Tensor:
        return nn.functional.cross_entropy(model(batch[0]), batch[1])


def parabola(trial):
    """An objective, with a twentieth of a second a step, so that it can be stopped on its way."""
    x = trial.suggest_float("x", -1, 1)
    for step in range(9):
        time.sleep(0.05)
        trial.report(x * x + 1 / (step + 1), step)
    return x * x


def sums(trial):
    """A sum over epochs, which goes on from its checkpoint."""
    state = trial.load()
    total = state["total"] if state else 0.0
    for epoch in trial.epochs():
        time.sleep(0.4)
        total += trial.params["lr"] * epoch
        trial.report({"total": total}, checkpoint={"total": total})


if hasattr(penstock, "epoch_function"):  # the first checkouts had none
    sums = penstock.epoch_function(sums)


def over():
    """Comes to its end."""
    study = penstock.create_study(
        study_name="over", metric="loss", sampler="random", seed=3,
        strategy=penstock.ASHA(max_epochs=9),
    )  # fmt: skip
    study.optimize(Net, SPACE, n_trials=9)


def objective():
    """Is stopped on its way."""
    study = penstock.create_study(
        study_name="halfway", sampler="tpe", seed=3, strategy=penstock.ASHA(max_epochs=9)
    )
    study.optimize(parabola, n_trials=18)


def checkpointed():
    """Is stopped on its way, with checkpoints."""
    study = penstock.create_study(
        study_name="halfway", metric="total", sampler="tpe", seed=3,
        strategy=penstock.ASHA(max_epochs=9),
    )  # fmt: skip
    study.optimize(sums, SPACE, n_trials=18)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
