"""Two objectives: a network on handwritten digits that is accurate, and small.

    python examples/pareto.py

No trial is the best one: what comes out is the Pareto front, the trials that no other one beats in
both. One with more than 20,000 weights does not count (constraints), and the momentum is a
hyperparameter of SGD only (when).
"""

import numpy as np
import penstock
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset


class SmallNet(penstock.TorchTrainable):
    """One or two hidden layers on 8 x 8 pixels."""

    batch_size = 64

    def data(self):
        digits = load_digits()
        pixels = torch.tensor(digits.data / 16, dtype=torch.float32)
        labels = torch.tensor(digits.target)
        order = np.random.default_rng(0).permutation(len(labels))
        train, validation = (torch.tensor(part) for part in np.split(order, [1300]))
        return penstock.Data(
            train=TensorDataset(pixels[train], labels[train]),
            validation=TensorDataset(pixels[validation], labels[validation]),
        )

    def model(self):
        hidden, second = self.params["hidden"], self.params.get("second")
        layers = [nn.Linear(64, hidden), nn.ReLU()]
        if self.params["layers"] == 2:
            layers += [nn.Linear(hidden, second), nn.ReLU()]
            hidden = second
        return nn.Sequential(*layers, nn.Linear(hidden, 10))

    def optimizer(self, model):
        if self.params["optimizer"] == "adam":
            return torch.optim.Adam(model.parameters(), lr=self.params["lr"])
        # Only there where optimizer is sgd.
        momentum = self.params["momentum"]
        return torch.optim.SGD(model.parameters(), lr=self.params["lr"], momentum=momentum)

    def loss(self, model, batch):
        pixels, labels = batch
        return nn.functional.cross_entropy(model(pixels), labels)

    def metrics(self, model, batch):
        pixels, labels = batch
        return {
            "accuracy": (model(pixels).argmax(1) == labels).float().mean(),
            "weights": float(sum(each.numel() for each in model.parameters())),
        }


SPACE = {
    "hidden": penstock.Int(4, 256, log=True),
    "layers": [1, 2],
    "second": penstock.Int(4, 128, log=True, when={"layers": 2}),
    "lr": penstock.Float(1e-3, 1e-1, log=True),
    "optimizer": ["adam", "sgd"],
    "momentum": penstock.Float(0.5, 0.95, when={"optimizer": "sgd"}),
}

if __name__ == "__main__":
    study = penstock.create_study(
        directions=["maximize", "minimize"],
        metric=["accuracy", "weights"],
        constraints={"weights": 20_000},
        strategy=penstock.FullBudget(4),
    )
    study.optimize(SmallNet, SPACE, n_trials=24)
    for trial in sorted(study.best_trials, key=lambda trial: trial.values[1]):
        accuracy, weights = trial.values
        print(f"trial {trial.number:2}: accuracy {accuracy:.4f} with {weights:6.0f} weights")
