"""A real, small study for runs under fault: digits, a few dozen milliseconds an epoch.

The data is read from scikit-learn's file without importing scikit-learn, whose import takes as long
as torch's: a trainer that was killed is back the sooner.
"""

from __future__ import annotations

import importlib.util
import time
from functools import cache
from pathlib import Path

import numpy as np
import penstock
import torch
from torch import nn
from torch.utils.data import TensorDataset

#: Seconds that a step of a paced network takes longer: a quarter of a second an epoch.
PACE = 0.003
#: Search space of ``SteppedNet``: schedules of three pieces.
SCHEDULES = {
    "lr": penstock.Steps({0: [0.1, 0.03], 3: [0.03, 0.01], 7: [0.01, 0.003, 0.001]}),
    "hidden": [64],
    "dropout": [0.2],
}
SPACE = {
    "lr": penstock.Float(1e-4, 1e-2, log=True),
    "hidden": penstock.Int(32, 256, log=True),
    "dropout": penstock.Float(0.0, 0.5),
}


@cache
def digits() -> tuple[torch.Tensor, torch.Tensor]:
    """Scikit-learn's 1,797 digits: pixels from 0 to 1, a row each, and labels."""
    package = importlib.util.find_spec("sklearn")
    file = Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz"
    table = np.loadtxt(file, delimiter=",")
    pixels = torch.tensor(table[:, :-1] / 16, dtype=torch.float32)
    return pixels, torch.tensor(table[:, -1], dtype=torch.int64)


class DigitsNet(penstock.TorchTrainable):
    """Two layers with dropout on 8 x 8 pixels; momentum and a schedule: every part has state."""

    batch_size = 16

    def data(self):
        pixels, labels = digits()
        return penstock.Data(
            train=TensorDataset(pixels[:1297], labels[:1297]),
            validation=TensorDataset(pixels[1297:], labels[1297:]),
        )

    def model(self):
        hidden = self.params["hidden"]
        return nn.Sequential(
            nn.Linear(64, hidden),
            nn.ReLU(),
            nn.Dropout(self.params["dropout"]),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Linear(hidden, 10),
        )

    def optimizer(self, model):
        return torch.optim.SGD(model.parameters(), lr=self.params["lr"], momentum=0.9)

    def schedule(self, optimizer):
        return torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.9)

    def loss(self, model, batch):
        pixels, labels = batch
        return nn.functional.cross_entropy(model(pixels), labels)

    def metrics(self, model, batch):
        pixels, labels = batch
        return {"accuracy": (model(pixels).argmax(1) == labels).float().mean()}


class SteppedNet(DigitsNet):
    """The same, with a learning rate that Penstock sets."""

    def schedule(self, optimizer):
        return None


class PacedNet(DigitsNet):
    """The same bits, for faults that last: an epoch takes long, and no processor."""

    def loss(self, model, batch):
        time.sleep(PACE)
        return super().loss(model, batch)


class PacedSteppedNet(SteppedNet):
    """Likewise with a learning rate that Penstock sets."""

    def loss(self, model, batch):
        time.sleep(PACE)
        return super().loss(model, batch)
