"""Training code whose examples pass through a frozen encoder, right and wrong."""

from __future__ import annotations

import random

import torch
from penstock.tasks.contracts.contract import Data
from torch import nn
from torch.utils.data import Dataset, Subset, TensorDataset

from user_code.trainees import Small, points

#: An entry for each block that the encoder of this process has computed.
COMPUTED = []


class Net(nn.Module):
    """A frozen network with normalisation and dropout."""

    def __init__(self, seed: int = 3):
        super().__init__()
        made = torch.Generator().manual_seed(seed)
        self.layers = nn.Sequential(
            nn.Linear(4, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.5), nn.Linear(32, 6)
        )
        with torch.no_grad():
            for each in self.parameters():
                each.copy_(torch.randn(each.shape, generator=made))
        self.eval().requires_grad_(requires_grad=False)

    def forward(self, x):
        COMPUTED.append(len(x))
        return self.layers(x)


class OnActivations(Small):
    """A small network, with dropout, on activations of 150 points."""

    def data(self) -> Data:
        data = points(200)
        return Data(
            Subset(data, range(150)), Subset(data, range(150, 180)), Subset(data, range(180, 200))
        )

    def encoder(self):
        return Net()

    def model(self):
        return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 2))


class Listed(Dataset):
    """The points of ``data``, one at a time."""

    def __init__(self, data):
        self._data = data

    def __len__(self):
        return len(self._data)

    def __getitem__(self, i):
        x, y = self._data[i]
        return x, int(y)


class OneByOne(OnActivations):
    def data(self) -> Data:
        made = super().data()
        return Data(Listed(made.train), Listed(made.validation))


class Noisy(Listed):
    def __getitem__(self, i):
        x, y = super().__getitem__(i)
        return x + 0.1 * random.random(), y


class Augmented(OnActivations):
    def data(self) -> Data:
        made = super().data()
        return Data(Noisy(made.train), made.validation)


class Secretly(Listed):
    """Draws from a generator that nobody knows of."""

    own = random.Random(5)

    def __getitem__(self, i):
        x, y = super().__getitem__(i)
        return x + self.own.random(), y


class AugmentedSecretly(OnActivations):
    def data(self) -> Data:
        made = super().data()
        return Data(Secretly(made.train), made.validation)


class Training(OnActivations):
    def encoder(self):
        net = Net()
        net.layers[3].train()
        return net


class InsideTraining(OnActivations):
    """The module in training mode is none of torch's; its own layers are in evaluation mode."""

    def encoder(self):
        outer = nn.Sequential(Net()).eval()
        outer[0].training = True
        return outer


class Learning(OnActivations):
    def encoder(self):
        net = Net()
        net.layers[4].bias.requires_grad_()
        return net


class BatchStatistics(OnActivations):
    def encoder(self):
        net = Net()
        net.layers[1] = nn.BatchNorm1d(32, track_running_stats=False).eval()
        return net.requires_grad_(requires_grad=False)


class Random(Net):
    def forward(self, x):
        return super().forward(x + torch.rand_like(x))


class Drawing(OnActivations):
    def encoder(self):
        return Random()


class Counts(Net):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        self.seen += len(x)
        return super().forward(x) + self.seen


class Counting(OnActivations):
    def encoder(self):
        return Counts()


class NoModule(OnActivations):
    def encoder(self):
        return "resnet18"


class Sums(Net):
    def forward(self, x):
        return super().forward(x).sum(0)


class OneForAll(OnActivations):
    def encoder(self):
        return Sums()


class Words(OnActivations):
    def data(self) -> Data:
        class Said(Listed):
            def __getitem__(self, i):
                return self._data[i][0], "yes"

        made = super().data()
        return Data(Said(made.train), made.validation)


class Wider(OnActivations):
    """The encoder depends on a hyperparameter."""

    def encoder(self):
        return Net(self.params["seed"])


def plain(n: int) -> TensorDataset:
    """Return ``n`` examples of four numbers."""
    return TensorDataset(torch.randn(n, 4, generator=torch.Generator().manual_seed(n)))
