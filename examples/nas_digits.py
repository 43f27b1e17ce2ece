"""Search a small convolution net, layer by layer, on scikit-learn's handwritten digits.

    python examples/nas_digits.py

Kernels, expansions, depth and widths in the manner of MnasNet, together with the learning rate: 24
architectures are tried for 1 to 9 epochs each (ASHA).
"""

import numpy as np
import penstock
import torch
from penstock import nas
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset


def inverted(width, expansion, kernel):
    """Widen, convolve each channel by itself, and narrow again."""
    wide = width * expansion
    return nn.Sequential(
        nn.Conv2d(width, wide, 1),
        nn.BatchNorm2d(wide),
        nn.ReLU(),
        nn.Conv2d(wide, wide, kernel, padding=kernel // 2, groups=wide),
        nn.BatchNorm2d(wide),
        nn.ReLU(),
        nn.Conv2d(wide, width, 1),
        nn.BatchNorm2d(width),
    )


class Residual(nn.Module):
    """A layer with a shortcut: its input is added to its output."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return x + self.layer(x)


class Net(nas.ModelSpace):
    """Choices: width, depth, and of each block its operation, kernel and expansion."""

    def __init__(self, classes=10):
        super().__init__()
        width = nas.choice("width", [8, 12, 16])
        self.stem = nn.Conv2d(1, width, 3, padding=1)
        self.body = nas.Repeat(lambda i: self.block(i, width), (1, 3), label="depth")
        self.head = nn.Linear(2 * width, classes)

    def block(self, i, width):
        def mobile():
            kernel = nas.choice(f"kernel{i}", [3, 5])
            return Residual(inverted(width, nas.choice(f"expansion{i}", [2, 3]), kernel))

        def plain():
            return nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.ReLU())

        return nas.LayerChoice(
            {"mobile": mobile, "plain": plain, "skip": nn.Identity}, label=f"op{i}"
        )

    def forward(self, x):
        x = self.body(self.stem(x))
        return self.head(torch.cat([x.mean((2, 3)), x.amax((2, 3))], 1))


class Digits(penstock.TorchTrainable):
    """Hyperparameters: lr, and the choices of ``Net``."""

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
        return torch.optim.Adam(model.parameters(), lr=self.params["lr"])

    def loss(self, model, batch):
        images, labels = batch
        return nn.functional.cross_entropy(model(images), labels)

    def metrics(self, model, batch):
        images, labels = batch
        scores = model(images)
        return {
            "loss": nn.functional.cross_entropy(scores, labels),
            "accuracy": (scores.argmax(1) == labels).float().mean(),
        }


def space():
    """The choices of ``Net`` and the learning rate."""
    return nas.space(Net) | {"lr": penstock.Float(1e-3, 3e-2, log=True)}


if __name__ == "__main__":
    print(f"{nas.size(nas.space(Net))} architectures")
    study = penstock.create_study(
        direction="maximize",
        metric="accuracy",
        strategy=penstock.ASHA(max_epochs=9, eta=3),
        seed=0,
    )
    study.optimize(Digits, space(), n_trials=24)
    print(f"accuracy {study.best_value:.4f} with {study.best_params}")
    print(nas.best_model(study))  # with its weights
