"""The studies in the recorded state folders of features, as a user of version 0.2 wrote them.

Each is stopped on its way, while what it is named after is in use.

    python feature_studies.py STUDY
"""

from __future__ import annotations

import sys
import time

import penstock
import torch
from penstock import nas
from torch import nn
from torch.utils.data import TensorDataset

#: They go on where the processor and torch are others, and so the bits.
ELSEWHERE = penstock.Resources(on_signature_change="record")
SPACE = {"lr": penstock.Float(1e-3, 1e-1, log=True)}


class Net(penstock.TorchTrainable):
    """Points in four dimensions, labelled by the sign of their sum."""

    batch_size = 8

    def data(self) -> penstock.Data:
        x = torch.randn(256, 4, generator=torch.Generator().manual_seed(1))
        data = TensorDataset(x, (x.sum(1) > 0).long())
        return penstock.Data(data, data)

    def model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), lr=self.now("lr"))

    def loss(self, model: nn.Module, batch) -> torch.Tensor:
        time.sleep(0.003)  # so that the study can be stopped on its way
        return nn.functional.cross_entropy(model(batch[0]), batch[1])


class Choices(nas.ModelSpace):
    """A width, and one of two activations."""

    def __init__(self):
        super().__init__()
        width = nas.choice("width", [4, 8])
        self.first = nn.Linear(4, width)
        self.act = nas.LayerChoice({"relu": nn.ReLU(), "tanh": nn.Tanh()}, label="act")
        self.last = nn.Linear(width, 2)

    def forward(self, x):
        return self.last(self.act(self.first(x)))


class Chosen(Net):
    """The net of a configuration."""

    def model(self) -> nn.Module:
        return nas.build(Choices, self.params)

    def fixed_metrics(self, model):
        return {"parameters": nas.parameters(model)}


def started(n_trials, code=Net, space=SPACE, **options):
    given = {
        "metric": "loss",
        "sampler": "random",
        "seed": 3,
        "strategy": penstock.ASHA(max_epochs=9),
    }
    study = penstock.create_study(study_name="halfway", **given | options)
    study.optimize(code, space, n_trials=n_trials)


def limits():
    """Has a limit of its time, which it does not reach, and a deadline."""
    started(
        40,
        limits=penstock.Limits(device_hours=5.0, deadline="2100-01-01T00:00:00Z"),
    )


def prefixes():
    """Has trials with their first epochs in common."""
    rates = [0.1, 0.05, 0.01]
    space = {"lr": penstock.Steps({0: rates, 3: rates, 6: rates})}
    started(27, space=space, sampler="grid", seeding="shared", strategy=penstock.FullBudget(9))


def architectures():
    """Searches a model with choices, by evolution."""
    space = nas.space(Choices) | SPACE
    sampler = penstock.Sampler("evolution", population_size=4)
    started(40, Chosen, space, sampler=sampler, constraints={"parameters": 60})


def tuning():
    """Tunes system parameters of its trials."""
    started(40, system="tune")


def packing():
    """Has trials that share a device, by what they need of its memory."""
    started(40, resources=penstock.Resources(memory=2**30, on_signature_change="record"))


def lanes():
    """Has trials that take turns in one trainer."""
    started(40)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
