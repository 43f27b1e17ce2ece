"""The quickstart: tune a small network on scikit-learn's handwritten digits.

    python examples/digits.py

27 configurations are tried for 1 to 9 epochs each (ASHA), on all CPU cores or GPUs of this machine.
"""

import numpy as np
import penstock
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset


class DigitsNet(penstock.TorchTrainable):
    """Two hidden layers on 8 x 8 pixels. Hyperparameters: lr, hidden, dropout, batch_size."""

    def data(self):
        digits = load_digits()
        pixels = torch.tensor(digits.data / 16, dtype=torch.float32)
        labels = torch.tensor(digits.target)
        order = np.random.default_rng(0).permutation(len(labels))
        train, validation, test = (torch.tensor(part) for part in np.split(order, [1097, 1447]))
        return penstock.Data(
            train=TensorDataset(pixels[train], labels[train]),
            validation=TensorDataset(pixels[validation], labels[validation]),
            test=TensorDataset(pixels[test], labels[test]),
        )

    def model(self):
        hidden, dropout = self.params["hidden"], self.params["dropout"]
        return nn.Sequential(
            nn.Linear(64, hidden),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Linear(hidden, 10),
        )

    def optimizer(self, model):
        return torch.optim.Adam(model.parameters(), lr=self.params["lr"])

    def loss(self, model, batch):
        pixels, labels = batch
        return nn.functional.cross_entropy(model(pixels), labels)

    def metrics(self, model, batch):
        pixels, labels = batch
        scores = model(pixels)
        return {
            "loss": nn.functional.cross_entropy(scores, labels),
            "accuracy": (scores.argmax(1) == labels).float().mean(),
        }


if __name__ == "__main__":
    study = penstock.create_study(
        direction="maximize",
        metric="accuracy",
        strategy=penstock.ASHA(max_epochs=9, eta=3),
        seed=0,
    )
    study.optimize(
        DigitsNet,
        space={
            "lr": penstock.Float(1e-4, 1e-1, log=True),
            "hidden": penstock.Int(16, 256, log=True),
            "dropout": penstock.Float(0.0, 0.5),
            "batch_size": penstock.Categorical([32, 64, 128]),
        },
        n_trials=27,
    )
    best = study.best_trial
    held_out = best.user_attrs["metrics"]["test_accuracy"]
    print(f"trial {best.number}: accuracy {best.value:.4f}, on held-out data {held_out:.4f}")
