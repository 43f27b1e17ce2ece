"""Trials whose steps take 10 ms and are noted in a file, so that it shows when each was made."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from penstock import Data, TorchTrainable
from torch import nn
from torch.utils.data import TensorDataset

#: Seconds of a step, and steps of an epoch.
STEP, STEPS = 0.01, 100


class Noted(TorchTrainable):
    """A line that is fitted, slowly. Its trials are told apart by ``lr``."""

    batch_size = 1

    def data(self) -> Data:
        points = torch.linspace(-1, 1, STEPS)[:, None]
        made = TensorDataset(points, 2 * points)
        return Data(made, TensorDataset(points[:8], 2 * points[:8]))

    def model(self) -> nn.Module:
        return nn.Linear(1, 1)

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), lr=self.params["lr"])

    def loss(self, model: nn.Module, batch: Any) -> torch.Tensor:
        x, y = batch
        if model.training:
            note = os.open(self.params["file"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            os.write(note, f"{self.params['lr']!r} {time.time()!r}\n".encode())
            os.close(note)
            time.sleep(STEP)
        return nn.functional.mse_loss(model(x), y)

    def metrics(self, model: nn.Module, batch: Any) -> dict[str, torch.Tensor]:
        return {"loss": self.loss(model, batch)}


def steps_of(file: Path, params: Mapping[str, Any]) -> list[float]:
    """Return when the trial with these parameters made its steps (seconds since 1970)."""
    name = f"{params['lr']!r} "
    lines = file.read_text().splitlines() if file.exists() else []
    return [float(line.removeprefix(name)) for line in lines if line.startswith(name)]
