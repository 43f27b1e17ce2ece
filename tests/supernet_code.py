"""Training code of a super-net, and of its candidates."""

from __future__ import annotations

from nas_code import Unfixed
from penstock import nas
from torch import nn


def layer(activation):
    return lambda: nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), activation())


class Space(nas.ModelSpace):
    """A depth, layers, inputs and a cell; ``width`` where it is asked for is a value."""

    def __init__(self, *, width=None):
        super().__init__()
        wide = 4 if width is None else nas.choice("width", width)
        self.stem = nn.Linear(3, wide)
        self.body = nas.Repeat(self.block, (1, 3), "depth")
        self.join = nas.InputChoice(2, n_chosen=1, label="join")
        self.cell = nas.Cell({"a": self.operation, "b": self.operation}, 2, label="cell", inputs=2)
        self.head = nn.Linear(8, 1)

    def block(self, index):
        candidates = {"relu": layer(nn.ReLU), "tanh": layer(nn.Tanh), "skip": nn.Identity()}
        return nas.LayerChoice(candidates, label=f"op{index}")

    def operation(self, index):
        return nn.Linear(4, 4)

    def forward(self, x):
        x = self.stem(x)
        deep = self.body(x)
        return self.head(self.cell(x, self.join([x, deep])))


class Super(Unfixed):
    """The line of ``Fitted``, learned by a super-net."""

    def model(self):
        return nas.supernet(Space, self.params)


class Sized(Unfixed):
    """One path of it, whose size is an objective and has a bound."""

    def model(self):
        return nas.build(Space, self.params)

    def fixed_metrics(self, model):
        return {"parameters": nas.parameters(model)}


class Candidate(Unfixed):
    """One path of it."""

    def model(self):
        return nas.build(Space, self.params)
