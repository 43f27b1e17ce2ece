"""Trials of several kinds of networks on made data, whose times and bits are measured."""

from __future__ import annotations

from functools import lru_cache

import penstock
import torch
from penstock.tasks.system.system import System
from penstock.tasks.training import loop
from penstock.tasks.training.training import Training
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.utils.data import TensorDataset

OPTIMIZERS = {
    "sgd": lambda ps, lr: torch.optim.SGD(ps, lr, momentum=0.9, weight_decay=1e-4),
    "adam": lambda ps, lr: torch.optim.Adam(ps, lr / 10),
    "adamw": lambda ps, lr: torch.optim.AdamW(ps, lr / 10),
}


@lru_cache
def made_data(shape, classes, train, validation):
    """Gaussian examples; their class depends on the first three numbers."""
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(train + validation, *shape, generator=generator)
    y = (x.flatten(1)[:, :3].sum(1) * 2).long().abs() % classes
    return penstock.Data(TensorDataset(x[:train], y[:train]), TensorDataset(x[train:], y[train:]))


class Small(penstock.TorchTrainable):
    """An MLP 20-32-32-2, 500 examples in batches of 32."""

    batch_size = 32
    extent = ((20,), 2, 500, 150)

    def data(self):
        return made_data(*self.extent)

    def model(self):
        return nn.Sequential(
            nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 2)
        )

    def optimizer(self, model):
        return OPTIMIZERS[self.params["optimizer"]](model.parameters(), self.params["lr"])

    def loss(self, model, batch):
        x, y = batch
        return F.cross_entropy(model(x), y)

    def metrics(self, model, batch):
        x, y = batch
        scores = model(x)
        return {
            "loss": F.cross_entropy(scores, y),
            "accuracy": (scores.argmax(1) == y).float().mean(),
        }


class Dropout(Small):
    def model(self):
        layers = [nn.Linear(20, 32), nn.ReLU(), nn.Dropout(self.params["lr"]), nn.Linear(32, 2)]
        return nn.Sequential(*layers)


class Mnist(Small):
    """An MLP 784-128-10 on data of the size of MNIST's first 10,000."""

    batch_size = 128
    extent = ((784,), 10, 10_000, 1000)

    def model(self):
        return nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))


class LeNet(Small):
    """LeNet-5 on data of the size of CIFAR-10's first 1,000."""

    extent = ((3, 32, 32), 10, 1000, 200)

    def model(self):
        return nn.Sequential(
            *(nn.Conv2d(3, 6, 5), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
            *(nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10)),
        )


class BatchNorm(Small):
    """Separable convolutions with batch normalisation."""

    extent = ((3, 16, 16), 10, 256, 64)

    def model(self):
        return nn.Sequential(
            *(nn.Conv2d(3, 16, 3, bias=False), nn.BatchNorm2d(16), nn.ReLU()),
            *(nn.Conv2d(16, 16, 3, groups=16), nn.Conv2d(16, 32, 1), nn.BatchNorm2d(32)),
            *(nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)),
        )


class Transformer(Small):
    """One encoder layer over five tokens."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.head = nn.Linear(4, 32), nn.Linear(32, 2)
            self.encoder = nn.TransformerEncoderLayer(32, 4, 64, 0.1, batch_first=True)

        def forward(self, x):
            return self.head(self.encoder(self.embed(x.view(-1, 5, 4))).mean(1))

    def model(self):
        return self.Net()


KINDS = {
    "mlp_20_32_32_2": Small,
    "mlp_784_128_10": Mnist,
    "mlp_dropout": Dropout,
    "lenet": LeNet,
    "batch_norm": BatchNorm,
    "transformer": Transformer,
}


#: System configurations that change the bits of a trial.
SYSTEMS: dict[str, dict[str, str]] = {
    "fp32": {},
    "channels_last": {"memory_format": "channels_last"},
    "bf16": {"autocast": "bfloat16"},
}


def trial(kind: str, optimizer: str, number: int, system: str = "fp32") -> Training:
    """A trial before its first epoch; each number has a learning rate of its own."""
    code = KINDS[kind]({"lr": 0.3 / (number + 2), "optimizer": optimizer})
    cpu, knobs = torch.device("cpu"), System(SYSTEMS[system])
    return loop.start(code, code.data(), 1, number, device=cpu, system=knobs)


def configure(threads: int) -> None:
    """As a trainer does it."""
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False
    torch.set_num_threads(threads)


def quiet(epoch: int, step: int, steps: int) -> None:
    """A tick that lets an epoch go on."""
