"""Training code whose model has choices, as an epoch function and as an objective."""

from __future__ import annotations

import penstock
import torch
from penstock import nas
from torch import nn
from torch.utils.data import TensorDataset


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
    """Return the number of parameters of the net of ``params``, which is to be minimised."""
    return sum(each.numel() for each in nas.build(Net, params, outputs=2).parameters())


class Fitted(penstock.TorchTrainable):
    """The net learns a line. Its size and its work are known before it is trained."""

    batch_size = 16

    def data(self):
        x = torch.rand(64, 3, generator=torch.Generator().manual_seed(0))
        points = TensorDataset(x, x.sum(1, keepdim=True))
        return penstock.Data(train=points, validation=points)

    def model(self):
        return nas.build(Net, self.params)

    def fixed_metrics(self, model):
        torch.nn.init.zeros_(torch.empty(torch.randint(9, (1,)).item()))  # draws
        model.eval()
        example = torch.zeros(1, 3)
        return {
            "parameters": nas.parameters(model),
            "flops": nas.flops(model, example),
            "latency_ms": nas.latency(model, example, runs=5).ms,
        }

    def optimizer(self, model):
        return torch.optim.SGD(model.parameters(), lr=0.1)

    def loss(self, model, batch):
        x, y = batch
        return nn.functional.mse_loss(model(x), y)


class Chain(nas.ModelSpace):
    """The model that ``mutated`` changes."""

    def __init__(self):
        super().__init__()
        self.first, self.act, self.second = nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1)

    def example(self):
        return torch.zeros(2, 3)

    def forward(self, x):
        return self.second(self.act(self.first(x)))


@nas.mutator(match=nn.ReLU)
def activation(site):
    if (layer := site.choose("act", ["ReLU", "Tanh", "Identity"])) != "ReLU":
        site.replace(layer)


@nas.mutator(match=nn.Linear)
def behind(site):
    """A layer that does nothing is none: its choice reaches one architecture on two ways."""
    if site.name == "second" and site.choose("idle", [True, False]):
        site.insert("Identity")


class Mutated(Fitted):
    """The same line, learned by what mutators make of a chain."""

    def model(self):
        return nas.build(Chain, self.params, mutators=[activation, behind])


class Plain(Fitted):
    """The same line, learned without a choice."""

    def model(self):
        return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))


class Unfixed(Fitted):
    """The same, of which nothing is known before."""

    def fixed_metrics(self, model):
        return {}


@penstock.epoch_function
def bounded(trial):
    """Says how large the net is before its loop."""
    try:
        trial.report({"size": parameters_of(trial.params)})
    except Exception:  # a user's catch-all does not see the end of the trial
        return
    for epoch in trial.epochs():
        trial.report({"epochs": epoch})


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
