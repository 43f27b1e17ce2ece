"""Training code of a super-net, and of its candidates."""

from __future__ import annotations

import penstock
import torch
from penstock import nas
from torch import nn
from torch.utils.data import TensorDataset

from user_code.nas_code import Unfixed


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


class Images(nas.ModelSpace):
    """Convolutions whose candidates need very different memory: four choices of four, a depth."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.body = nas.Repeat(self.block, (1, 4), "depth")
        self.head = nn.Linear(8, 10)

    def block(self, index):
        wide = {
            f"wide{width}": lambda width=width: nn.Sequential(
                nn.Conv2d(8, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, 8, 3, padding=1)
            )
            for width in (8, 32, 128)
        }
        return nas.LayerChoice({**wide, "skip": nn.Identity()}, label=f"op{index}")

    def forward(self, x):
        return self.head(self.body(self.stem(x)).mean((2, 3)))


class Weights(nas.ModelSpace):
    """Layers whose weights outweigh what they compute."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            *(
                nas.LayerChoice([self.narrow(width) for width in (8, 64, 1024)], label=f"op{n}")
                for n in range(4)
            )
        )
        self.head = nn.Linear(256, 10)

    @staticmethod
    def narrow(width):
        return lambda: nn.Sequential(nn.Linear(256, width), nn.Linear(width, 256))

    def forward(self, x):
        return self.head(self.body(x.flatten(1)[:, :256]))


class SuperImages(penstock.TorchTrainable):
    """A super-net whose memory is to be known."""

    space = Images
    batch_size = 16

    def data(self):
        images = torch.randn(200, 3, 16, 16, generator=torch.Generator().manual_seed(0))
        points = TensorDataset(images, torch.arange(200) % 10)
        return penstock.Data(points, TensorDataset(*points[:40]))

    def model(self):
        return nas.supernet(self.space)

    def optimizer(self, model):
        return torch.optim.AdamW(model.parameters(), lr=1e-3)

    def loss(self, model, batch):
        return nn.functional.cross_entropy(model(batch[0]), batch[1])


class SuperWeights(SuperImages):
    space = Weights


class PathOfWeights(SuperWeights):
    """The largest path of it."""

    def model(self):
        return nas.build(Weights, {f"op{n}": 2 for n in range(4)})
