"""The training of every system: a small net on random inputs, and a given learning curve.

Imports nothing of any system. A trial is (``lr``, ``steps`` an epoch); it reports ``curve``, so
every system sees the same values and only its own rules differ. Each epoch is noted with its
beginning and end in a file of the process that trained it.
"""

from __future__ import annotations

import json
import math
import os
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

BATCH = 64


def curve(lr: float, epoch: float) -> float:
    """The loss after ``epoch`` epochs: best at lr = 0.01, and falling."""
    return (math.log10(lr) + 2) ** 2 / 4 + math.exp(-epoch / 9)


def network(net: str) -> nn.Sequential:
    """``conv``: LeNet's size, 28 x 28 pixels. ``mlp``: 20-32-32-2."""
    if net == "mlp":
        return nn.Sequential(
            nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 2)
        )
    return nn.Sequential(
        nn.Conv2d(1, 8, 5, stride=2),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16 * 25, 10),
    )


def examples(net: str, steps: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return inputs and labels of an epoch of ``steps`` steps."""
    made = torch.Generator().manual_seed(0)
    n = BATCH * steps
    shape, labels = ((20,), 2) if net == "mlp" else ((1, 28, 28), 10)
    return torch.randn(n, *shape, generator=made), torch.randint(0, labels, (n,), generator=made)


class Training:
    """One trial in a plain PyTorch loop on one thread."""

    def __init__(self, lr: float, steps: int, log: str, net: str) -> None:
        torch.set_num_threads(1)
        torch.manual_seed(0)
        self.lr, self.log, self.epoch = lr, log, 0
        self.model = network(net)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=lr)
        self.inputs, self.labels = examples(net, steps)

    def run_epoch(self) -> float:
        """Train for an epoch, evaluate on a batch; the loss that is reported."""
        began = time.time()
        for batch in torch.randperm(len(self.labels)).split(BATCH):
            self.optimizer.zero_grad()
            nn.functional.cross_entropy(
                self.model(self.inputs[batch]), self.labels[batch]
            ).backward()
            self.optimizer.step()
        self.model.eval()
        with torch.no_grad():
            self.model(self.inputs[:BATCH])
        self.model.train()
        self.epoch += 1
        if self.log:
            with (Path(self.log) / str(os.getpid())).open("a") as file:
                file.write(json.dumps([began, time.time()]) + "\n")
        return curve(self.lr, self.epoch)

    def save(self, file: Path) -> None:
        """Save what the next epoch begins from."""
        torch.save((self.epoch, self.model.state_dict(), self.optimizer.state_dict()), file)

    def load(self, file: Path) -> None:
        """Go on from what ``save`` has saved."""
        self.epoch, model, optimizer = torch.load(file, weights_only=True)
        self.model.load_state_dict(model)
        self.optimizer.load_state_dict(optimizer)


def noted(log: Path) -> list[tuple[float, float]]:
    """Beginning and end (seconds of the epoch) of every epoch that was trained, in order."""
    return sorted(
        (began, ended)
        for file in log.iterdir()
        for began, ended in map(json.loads, file.read_text().splitlines())
    )


def result(wall: float, epochs: list[tuple[float, float]]) -> dict[str, Any]:
    """Of one study: seconds from its submission to its end, epochs, and seconds in epochs."""
    return {"wall_s": wall, "epochs": len(epochs), "training_s": sum(e - b for b, e in epochs)}
