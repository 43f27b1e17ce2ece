"""A LightningModule as it is, its loop Penstock's: paused, moved and widened with the same bits.

pip install 'penstock[lightning]'
python examples/lightning_digits.py
"""

import penstock
import pytorch_lightning as pl
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Digits(pl.LightningDataModule):
    def __init__(self, batch_size=64):
        super().__init__()
        self.batch_size = batch_size

    def setup(self, stage):
        digits = load_digits()
        pixels = torch.tensor(digits.data / 16, dtype=torch.float32)
        labels = torch.tensor(digits.target)
        x, x_valid, y, y_valid = train_test_split(pixels, labels, random_state=0)
        self.train, self.validation = TensorDataset(x, y), TensorDataset(x_valid, y_valid)

    def train_dataloader(self):
        return DataLoader(self.train, self.batch_size, shuffle=True)

    def val_dataloader(self):
        return DataLoader(self.validation, 512)


class Classifier(pl.LightningModule):
    def __init__(self, lr, hidden, dropout):
        super().__init__()
        self.lr = lr
        self.layers = nn.Sequential(
            nn.Linear(64, hidden), nn.ReLU(), nn.Dropout(dropout), nn.Linear(hidden, 10)
        )

    def training_step(self, batch, batch_idx):
        x, y = batch
        return nn.functional.cross_entropy(self.layers(x), y)

    def validation_step(self, batch, batch_idx):
        x, y = batch
        scores = self.layers(x)
        self.log("val_loss", nn.functional.cross_entropy(scores, y), prog_bar=True)
        self.log("val_accuracy", (scores.argmax(1) == y).float().mean())

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), lr=self.lr)
        return [optimizer], [torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.9)]


class Tuned(penstock.LightningTrainable):
    """The classes to tune: both are called with the parameters that they name."""

    module = Classifier
    datamodule = Digits


if __name__ == "__main__":
    study = penstock.create_study(
        direction="maximize",
        metric="val_accuracy",
        strategy=penstock.ASHA(max_epochs=9, eta=3),
        seed=0,
    )
    study.optimize(
        Tuned,
        {
            "lr": penstock.Float(1e-4, 1e-1, log=True),
            "hidden": penstock.Int(16, 256, log=True),
            "dropout": penstock.Float(0.0, 0.5),
            "batch_size": [32, 64, 128],
        },
        n_trials=18,
    )
    best = study.best_trial
    print(f"best: trial {best.number}, accuracy {best.value:.4f}, {best.params}")
