"""Training code whose model has choices, as an epoch function and as an objective."""

from __future__ import annotations

import penstock
import torch
from penstock import nas
from torch import nn


class Net(nas.ModelSpace):
    """``deep`` is there only with the operation that has it."""

    def __init__(self, outputs=1):
        super().__init__()
        width = nas.choice("width", [2, 4])
        candidates = {"mlp": lambda: self.mlp(width), "linear": lambda: nn.Linear(3, width)}
        self.body = nas.LayerChoice(candidates, label="op")
        self.head = nn.Linear(width, outputs)

    def mlp(self, width):
        return nn.Sequential(
            nn.Linear(3, width),
            nn.Tanh(),
            *(nn.Linear(width, width) for _ in range(nas.choice("deep", [1, 2]))),
        )

    def forward(self, x):
        return self.head(self.body(x))


def parameters_of(params):
    """How many parameters the net of ``params`` has: what is to be minimised."""
    return sum(each.numel() for each in nas.build(Net, params, outputs=2).parameters())


@penstock.epoch_function
def train(trial):
    trial.load()
    for _ in trial.epochs():
        trial.report({"size": parameters_of(trial.params)}, checkpoint={"done": torch.ones(1)})


def objective(trial):
    space = nas.space(Net, outputs=2)
    return parameters_of(
        {label: trial.suggest_categorical(label, each.choices) for label, each in space.items()}
    )
