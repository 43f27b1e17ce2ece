"""A model of the MnasNet space on augmented digits: for Penstock, and in a process of its own.

    python -m benchmarks.nas.wall_model PARAMS

trains the model of these parameters (JSON) for an epoch in a plain loop, evaluates it and prints
its accuracy and the seconds of both: what one process a model does. The data are read without
importing scikit-learn, and neither Optuna nor anything else of Penstock's engine is loaded.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import numpy as np
import penstock
import torch
from penstock import nas
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from testkit.digits import digits
from testkit.nas_spaces import MnasNet

#: Of MnasNet's filters; images have ``SIDE`` pixels a side.
WIDTH, SIDE = 0.25, 16
EXAMPLES, JUDGED = 384, 128


class Augmented(Dataset):  # type: ignore[type-arg]
    """Digits, each shifted, scaled and with noise, by Python and NumPy, then enlarged."""

    def __init__(self, images: Tensor, labels: Tensor) -> None:
        self._images, self._labels = images.numpy(), labels.tolist()

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        down, right = np.random.randint(-1, 2, 2)
        shifted = np.roll(self._images[i], (down, right), (0, 1)) * np.random.uniform(0.8, 1.2)
        noisy = shifted + np.random.normal(0, 0.05, shifted.shape)
        return enlarged(torch.from_numpy(noisy.astype(np.float32))), self._labels[i]


def enlarged(images: Tensor) -> Tensor:
    """8 x 8 pixels as three channels of ``SIDE`` x ``SIDE``."""
    times = SIDE // 8
    large = images.repeat_interleave(times, -1).repeat_interleave(times, -2)
    return large.unsqueeze(-3).expand(*large.shape[:-2], 3, SIDE, SIDE).contiguous()


class Model(penstock.TorchTrainable):
    """Hyperparameters: the choices of ``MnasNet``."""

    batch_size = 64

    def data(self) -> penstock.Data:
        pixels, labels = digits()
        images = pixels.reshape(-1, 8, 8)
        end = EXAMPLES + JUDGED
        return penstock.Data(
            Augmented(images[:EXAMPLES], labels[:EXAMPLES]),
            TensorDataset(enlarged(images[EXAMPLES:end]), labels[EXAMPLES:end]),
        )

    def model(self) -> nn.Module:
        return nas.build(MnasNet, self.params, width=WIDTH)

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        images, labels = batch
        return nn.functional.cross_entropy(model(images), labels)

    def metrics(self, model: nn.Module, batch: Any) -> dict[str, Tensor]:
        images, labels = batch
        return {"accuracy": (model(images).argmax(1) == labels).float().mean()}


def alone(params: dict[str, Any]) -> dict[str, float]:
    """Accuracy and seconds of an epoch of one model in a plain loop."""
    torch.manual_seed(0)
    code = Model(params)
    data, model = code.data(), code.model()
    optimizer = code.optimizer(model)
    began = time.perf_counter()
    for batch in DataLoader(data.train, code.batch_size, shuffle=True):
        optimizer.zero_grad()
        code.loss(model, batch).backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        found = code.metrics(model, data.validation.tensors)["accuracy"]  # type: ignore[union-attr]
    return {"accuracy": float(found), "seconds": time.perf_counter() - began}


def reading() -> float:
    """Seconds in which an epoch's batches are read."""
    torch.manual_seed(0)
    code = Model({})
    batches = DataLoader(code.data().train, code.batch_size, shuffle=True)
    began = time.perf_counter()
    for _ in batches:
        pass
    return time.perf_counter() - began


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps(alone(json.loads(sys.argv[1]))))
