"""Search a small MnasNet-like net on CIFAR-10, among those of at most 2.5 million operations.

    PENSTOCK_DATA=<folder> python examples/nas_cifar10.py

Reads ``cifar10/data_batch_1.bin.gz`` and ``test_batch.bin.gz`` there: CIFAR-10's binary version
(https://www.cs.toronto.edu/~kriz/cifar.html), each file packed with gzip. Each of three stages
chooses its block, kernel, width and depth (M. Tan et al., MnasNet, CVPR 2019). What is too large is
refused before it is trained.
"""

import gzip
import os
from functools import cache
from pathlib import Path

import numpy as np
import penstock
import torch
from penstock import nas
from torch import nn
from torch.utils.data import TensorDataset

FILES = ("cifar10/data_batch_1.bin.gz", "cifar10/test_batch.bin.gz")
EXAMPLES = 5000
#: Additions and multiplications of an image.
MOST_FLOPS = 2.5e6


@cache
def read(file):
    """Images, 3 x 32 x 32 numbers around 0, and labels."""
    path = Path(os.environ.get("PENSTOCK_DATA", ".")) / file
    rows = np.frombuffer(gzip.decompress(path.read_bytes()), np.uint8).reshape(-1, 3073)
    images = torch.tensor(rows[:, 1:].reshape(-1, 3, 32, 32)).float() / 128 - 1
    return TensorDataset(images, torch.tensor(rows[:, 0]).long())


def conv(inputs, outputs, kernel, stride=1, groups=1):
    layer = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(outputs), nn.ReLU6())


class Inverted(nn.Module):
    """Widen thrice, convolve each channel by itself, narrow; a shortcut where sizes agree."""

    def __init__(self, inputs, outputs, kernel, stride):
        super().__init__()
        wide = 3 * inputs
        self.layers = nn.Sequential(
            conv(inputs, wide, 1),
            conv(wide, wide, kernel, stride, groups=wide),
            nn.Conv2d(wide, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.shortcut = stride == 1 and inputs == outputs

    def forward(self, x):
        return x + self.layers(x) if self.shortcut else self.layers(x)


class Net(nas.ModelSpace):
    """A stem, three stages and ten scores."""

    def __init__(self):
        super().__init__()
        self.stem = conv(3, 16, 3, 2)
        width, stages = 16, []
        for stage, (stride, widths) in enumerate([(2, [16, 24]), (1, [24, 32]), (2, [48, 64])]):
            outputs = nas.choice(f"width{stage}", widths)
            stages.append(self.stage(f"{stage}", width, outputs, stride))
            width = outputs
        self.stages = nn.Sequential(*stages)
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10))

    def stage(self, name, inputs, outputs, stride):
        kernel = nas.choice(f"kernel{name}", [3, 5])

        def block(i):
            come, step = (inputs, stride) if i == 0 else (outputs, 1)
            return nas.LayerChoice(
                {
                    "plain": lambda: conv(come, outputs, kernel, step),
                    "separable": lambda: nn.Sequential(
                        conv(come, come, kernel, step, groups=come), conv(come, outputs, 1)
                    ),
                    "inverted": lambda: Inverted(come, outputs, kernel, step),
                },
                label=f"op{name}",
            )

        return nas.Repeat(block, (1, 2), label=f"depth{name}")

    def forward(self, x):
        return self.head(self.stages(self.stem(x)))


class Cifar(penstock.TorchTrainable):
    """Hyperparameters: lr, and the choices of ``Net``; ``examples`` are trained on."""

    batch_size = 128

    def data(self):
        train, test = map(read, FILES)
        count = self.params.get("examples", EXAMPLES)
        return penstock.Data(TensorDataset(*train[:count]), TensorDataset(*test[: count // 4]))

    def model(self):
        return nas.build(Net, self.params)

    def fixed_metrics(self, model):
        return {"flops": nas.flops(model, torch.zeros(1, 3, 32, 32))}

    def optimizer(self, model):
        return torch.optim.AdamW(model.parameters(), lr=self.params["lr"])

    def loss(self, model, batch):
        images, labels = batch
        return nn.functional.cross_entropy(model(images), labels)

    def metrics(self, model, batch):
        images, labels = batch
        return {"accuracy": (model(images).argmax(1) == labels).float().mean()}


def space():
    """The choices of ``Net`` and the learning rate."""
    return nas.space(Net) | {"lr": penstock.Float(1e-3, 1e-2, log=True)}


if __name__ == "__main__":
    print(f"{nas.size(nas.space(Net))} architectures")
    study = penstock.create_study(
        direction="maximize",
        metric="accuracy",
        strategy=penstock.ASHA(max_epochs=9),
        constraints={"flops": MOST_FLOPS},
        seed=0,
    )
    study.optimize(Cifar, space(), n_trials=12)
    print(f"accuracy {study.best_value:.3f} with {study.best_params}")
