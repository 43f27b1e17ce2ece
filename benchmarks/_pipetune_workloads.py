"""PipeTune's workloads, cut to two cores: LeNet-5, CNN and LSTM on text, short-epoch regressors.

Hyperparameters have the ranges of the paper's section 7.1.3 but for epochs, which are Hyperband's.
"""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import penstock
import torch
from torch import nn
from torch.utils.data import TensorDataset

from . import _families as families
from ._data import data_folder
from ._families import mnist_lenet

Params = Mapping[str, Any]
FASHION = "fashion-mnist"
#: The parameter that lays out tensors of images with their channels last, for all trials alike.
LAST = "channels_last"


@cache
def fashion_mnist() -> families.Tensors:
    """Fashion-MNIST's training images, from files of MNIST's names and format."""
    folder = data_folder(FASHION)
    images, labels = (
        mnist_lenet.parse(gzip.decompress((folder / f"{name}.gz").read_bytes()))
        for name in ("train-images-idx3-ubyte", "train-labels-idx1-ubyte")
    )
    pixels = torch.tensor(images[:6000].copy()).unsqueeze(1) / 255
    return pixels, torch.tensor(labels[:6000].copy()).long()


mnist, news20, synthetic = (
    cache(each) for each in (families.mnist, families.news20, families.synthetic)
)


class Tuned(penstock.TorchTrainable):
    """Common to all: the first ``examples`` of a shuffled data set, a tenth of them to validate."""

    tensors = staticmethod(mnist)

    def data(self):
        inputs, targets = self.tensors()
        chance = torch.Generator().manual_seed(0)
        taken = torch.randperm(len(inputs), generator=chance)[: self.params["examples"]]
        split = len(taken) * 9 // 10
        return penstock.Data(
            train=TensorDataset(inputs[taken[:split]], targets[taken[:split]]),
            validation=TensorDataset(inputs[taken[split:]], targets[taken[split:]]),
        )

    def optimizer(self, model):
        return torch.optim.SGD(model.parameters(), lr=self.params["lr"], momentum=0.9)

    def scores(self, model, inputs):
        if self.params.get(LAST) and inputs.dim() == 4:
            inputs = inputs.contiguous(memory_format=torch.channels_last)
        return model(inputs)

    def loss(self, model, batch):
        inputs, targets = batch
        return nn.functional.cross_entropy(self.scores(model, inputs), targets)

    def metrics(self, model, batch):
        inputs, targets = batch
        scores = self.scores(model, inputs)
        return {
            "loss": nn.functional.cross_entropy(scores, targets),
            "accuracy": (scores.argmax(1) == targets).float().mean(),
        }


class LeNet(Tuned):
    """LeNet-5 on MNIST."""

    def model(self):
        model = families.lenet(self.params["dropout"])
        return model.to(memory_format=torch.channels_last) if self.params.get(LAST) else model


class FashionLeNet(LeNet):
    """LeNet-5 on Fashion-MNIST."""

    tensors = staticmethod(fashion_mnist)


class TextCNN(Tuned):
    """A convolution over embedded words of 20 Newsgroups."""

    tensors = staticmethod(news20)

    def model(self):
        width = self.params["embedding"]
        model = families.text_cnn(self.params["dropout"])
        model[0] = nn.Embedding(families.WORDS, width)
        model[2] = nn.Conv1d(width, 128, 5)
        return model

    def optimizer(self, model):
        return torch.optim.Adagrad(model.parameters(), lr=self.params["lr"])


class TextLSTM(TextCNN):
    """An LSTM's last state over embedded words of 20 Newsgroups."""

    def model(self):
        width = self.params["embedding"]
        model = families.text_lstm(self.params["dropout"])
        model[0] = nn.Embedding(families.WORDS, width)
        model[1] = families.Last(width, 64)
        return model


class Regressor(Tuned):
    """One-dimensional convolutions on synthetic series; its "accuracy" is 1 / (1 + loss)."""

    tensors = staticmethod(synthetic)

    def model(self):
        layers = families.regressor(self.params["dropout"])
        layers(torch.zeros(2, 40, 72))  # gives the lazy layer its size
        return layers

    def optimizer(self, model):
        return torch.optim.Adam(model.parameters(), lr=self.params["lr"])

    def loss(self, model, batch):
        inputs, targets = batch
        return nn.functional.mse_loss(model(inputs), targets)

    def metrics(self, model, batch):
        loss = self.loss(model, batch)
        return {"loss": loss, "accuracy": 1 / (1 + loss)}


WORKLOADS: dict[str, type[Tuned]] = {
    "lenet_mnist": LeNet,
    "lenet_fashion": FashionLeNet,
    "cnn_news20": TextCNN,
    "lstm_news20": TextLSTM,
    "short_synthetic": Regressor,
}
#: That of tens of milliseconds an epoch.
SHORT = "short_synthetic"
BATCHES = (32, 64, 512, 1024)


def sampled(name: str, count: int, examples: int) -> list[dict[str, Any]]:
    """``count`` hyperparameter configurations of a workload; the same ones for the same name."""
    chance = np.random.default_rng([*name.encode()])
    return [
        {
            "batch_size": BATCHES[int(chance.integers(len(BATCHES)))],
            "dropout": float(chance.uniform(0, 0.5)),
            "embedding": int(chance.choice((50, 100, 200, 300))),
            "lr": float(10 ** chance.uniform(-3, -1)),
            "examples": examples,
        }
        for _ in range(count)
    ]


def absent(name: str) -> str:
    """Why a workload cannot be measured here; empty where it can."""
    try:
        WORKLOADS[name].tensors()
    except (OSError, penstock.UsageError) as error:
        return str(error)
    return ""
