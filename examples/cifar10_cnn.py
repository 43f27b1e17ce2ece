"""A small convolution net on CIFAR-10, with the hyperparameters that Fluid tuned.

    PENSTOCK_DATA=<folder> python examples/cifar10_cnn.py

Reads ``cifar10/data_batch_1.bin.gz`` and ``test_batch.bin.gz`` there: CIFAR-10's binary version
(https://www.cs.toronto.edu/~kriz/cifar.html), each file packed with gzip. The network is two
convolutions and two dense layers, a smaller one than Fluid's, and ``SPACE`` a quarter as wide.
"""

import gzip
import os
from functools import cache
from pathlib import Path

import numpy as np
import penstock
import torch
from torch import nn
from torch.utils.data import TensorDataset

FILES = ("cifar10/data_batch_1.bin.gz", "cifar10/test_batch.bin.gz")
#: A label, then 32 x 32 pixels in three planes.
RECORD = 1 + 3 * 32 * 32
SPACE = {
    "lr": penstock.Float(1e-3, 1.0, log=True),
    "momentum": penstock.Float(0.1, 0.9),
    "conv_1": [8, 16, 32],
    "conv_2": [16, 32, 64],
    "dropout_1": penstock.Float(0.01, 0.1),
    "dropout_2": penstock.Float(0.05, 0.2),
    "dense_1": [32, 64, 128, 256],
}


def folder() -> Path:
    """Return the folder of the data."""
    return Path(os.environ.get("PENSTOCK_DATA", "."))


@cache
def read(file: str) -> TensorDataset:
    """Images as bytes (3 x 32 x 32) and labels."""
    content = np.frombuffer(gzip.decompress((folder() / file).read_bytes()), np.uint8)
    if len(content) % RECORD:
        raise penstock.UsageError(f"{folder() / file} is not CIFAR-10's binary version")
    rows = torch.tensor(content.reshape(-1, RECORD))
    return TensorDataset(rows[:, 1:].reshape(-1, 3, 32, 32), rows[:, 0].long())


class SmallCnn(penstock.TorchTrainable):
    """Hyperparameters as in ``SPACE``; ``examples`` is how many images are trained on."""

    batch_size = 64

    def data(self):
        train, test = map(read, FILES)
        examples = self.params.get("examples", len(train))
        return penstock.Data(
            train=TensorDataset(*train[:examples]),
            validation=TensorDataset(*test[: examples // 4]),
        )

    def model(self):
        one, two, dense = (self.params[name] for name in ("conv_1", "conv_2", "dense_1"))
        return nn.Sequential(
            nn.Conv2d(3, one, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(one, two, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Dropout(self.params["dropout_1"]),
            nn.Flatten(),
            nn.Linear(two * 64, dense),
            nn.ReLU(),
            nn.Dropout(self.params["dropout_2"]),
            nn.Linear(dense, 10),
        )

    def optimizer(self, model):
        return torch.optim.SGD(
            model.parameters(), lr=self.params["lr"], momentum=self.params["momentum"]
        )

    def loss(self, model, batch):
        images, labels = batch
        return nn.functional.cross_entropy(model(images.float() / 128 - 1), labels)

    def metrics(self, model, batch):
        images, labels = batch
        scores = model(images.float() / 128 - 1)
        return {
            "loss": nn.functional.cross_entropy(scores, labels),
            "accuracy": (scores.argmax(1) == labels).float().mean(),
        }


if __name__ == "__main__":
    if absent := [file for file in FILES if not (folder() / file).exists()]:
        raise SystemExit(f"no {', '.join(absent)} in {folder()}: name it in PENSTOCK_DATA")
    study = penstock.create_study(
        direction="maximize", metric="accuracy", strategy=penstock.ASHA(max_epochs=9), seed=0
    )
    study.optimize(SmallCnn, SPACE, n_trials=9)
    print(f"accuracy {study.best_value:.3f} with {study.best_params}")
