"""Search the cell of a small net, as DARTS does, by evolution, on scikit-learn's digits.

    python examples/nas_cell.py

The net is a stem, a normal cell, a reduction cell and another normal cell. Cells of one kind are
alike: three nodes, each the sum of two earlier ones through an operation that is chosen (H. Liu et
al., DARTS, ICLR 2019). Regularised evolution proposes 40 of the cells (E. Real et al., AAAI 2019).
"""

import numpy as np
import penstock
import torch
from penstock import nas
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

WIDTH, NODES = 8, 3


def conv(inputs, outputs, kernel, stride=1, groups=1):
    layer = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(nn.ReLU(), layer, nn.BatchNorm2d(outputs))


def operations(width, stride):
    """Return operations for a node's input. Only inputs of a reduction cell are halved."""

    def halves(i):
        return stride if i < 2 else 1

    def skip(i):
        return nn.Identity() if halves(i) == 1 else conv(width, width, 1, 2)

    def separable(i):
        depthwise = conv(width, width, 3, halves(i), groups=width)
        return nn.Sequential(depthwise, conv(width, width, 1))

    return {
        "skip": skip,
        "conv3": lambda i: conv(width, width, 3, halves(i)),
        "separable3": separable,
        "max3": lambda i: nn.MaxPool2d(3, halves(i), 1),
        "average3": lambda i: nn.AvgPool2d(3, halves(i), 1),
    }


class Layer(nn.Module):
    """A cell that reads the two layers before it, brought to one width and size."""

    def __init__(self, before, last, width, kind, shrunk):
        super().__init__()
        self.first = conv(before, width, 1, 2 if shrunk else 1)
        self.second = conv(last, width, 1)
        stride = 2 if kind == "reduction" else 1
        self.cell = nas.Cell(operations(width, stride), NODES, label=kind)

    def forward(self, before, last):
        return self.cell(self.first(before), self.second(last))


class Net(nas.ModelSpace):
    """Three cells: what is chosen for a normal one is chosen for both."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(1, WIDTH, 3, padding=1)
        wide = NODES * WIDTH
        self.layers = nn.ModuleList(
            [
                Layer(WIDTH, WIDTH, WIDTH, "normal", shrunk=False),
                Layer(WIDTH, wide, 2 * WIDTH, "reduction", shrunk=False),
                Layer(wide, 2 * wide, 2 * WIDTH, "normal", shrunk=True),
            ]
        )
        self.head = nn.Linear(2 * wide, 10)

    def forward(self, x):
        before = last = self.stem(x)
        for layer in self.layers:
            before, last = last, layer(before, last)
        return self.head(last.mean((2, 3)))


class Digits(penstock.TorchTrainable):
    """No hyperparameters but the choices of ``Net``."""

    batch_size = 64

    def data(self):
        digits = load_digits()
        images = torch.tensor(digits.images / 16, dtype=torch.float32).unsqueeze(1)
        labels = torch.tensor(digits.target)
        order = np.random.default_rng(0).permutation(len(labels))
        train, validation = (torch.tensor(part) for part in np.split(order, [1347]))
        return penstock.Data(
            train=TensorDataset(images[train], labels[train]),
            validation=TensorDataset(images[validation], labels[validation]),
        )

    def model(self):
        return nas.build(Net, self.params)

    def optimizer(self, model):
        return torch.optim.AdamW(model.parameters(), lr=5e-3)

    def loss(self, model, batch):
        images, labels = batch
        return nn.functional.cross_entropy(model(images), labels)

    def metrics(self, model, batch):
        images, labels = batch
        return {"accuracy": (model(images).argmax(1) == labels).float().mean()}


if __name__ == "__main__":
    print(f"{nas.size(nas.space(Net)):,} pairs of cells")
    study = penstock.create_study(
        direction="maximize",
        metric="accuracy",
        sampler=penstock.Sampler("evolution", population_size=12, sample_size=4),
        strategy=penstock.FullBudget(3),
        seed=0,
    )
    study.optimize(Digits, nas.space(Net), n_trials=40)
    values = [trial.value for trial in study.trials]
    print(f"first 12: {np.mean(values[:12]):.3f} on average, last 12: {np.mean(values[-12:]):.3f}")
    print(f"accuracy {study.best_value:.4f} with {study.best_params}")
