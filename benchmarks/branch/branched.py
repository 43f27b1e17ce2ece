"""A small network on points, and what its branches come to by their definition, trained alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from penstock import Data, TorchTrainable
from penstock.app.ledger.rows import TrialRow
from penstock.tasks.checkpoints.state import copy_on_device
from penstock.tasks.training import determinism, loop
from torch import nn
from torch.utils.data import TensorDataset

POINTS, BATCH = 256, 64


class Net(TorchTrainable):
    """An MLP with dropout under SGD with momentum."""

    batch_size = BATCH

    def data(self) -> Data:
        x = torch.randn(POINTS + 64, 8, generator=torch.Generator().manual_seed(1))
        y = (x.sum(1) > 0).long()
        return Data(
            TensorDataset(x[:POINTS], y[:POINTS]),
            TensorDataset(x[POINTS:], y[POINTS:]),
        )

    def model(self) -> nn.Module:
        dropout = nn.Dropout(self.params["dropout"])
        return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), dropout, nn.Linear(16, 2))

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), lr=self.params["lr"], momentum=0.9)

    def loss(self, model: nn.Module, batch: Any) -> torch.Tensor:
        x, y = batch
        return nn.functional.cross_entropy(model(x), y)

    def metrics(self, model: nn.Module, batch: Any) -> dict[str, torch.Tensor]:
        x, y = batch
        return {"loss": nn.functional.cross_entropy(model(x), y)}


class Alone:
    """Trials of a study, trained one after the other without Penstock's engine."""

    def __init__(self, trials: Sequence[TrialRow], seed: int, shards: int) -> None:
        determinism.configure()
        torch.set_num_threads(1)
        self._trials = {trial.id: trial for trial in trials}
        self._seed, self._shards = seed, shards
        self._states: dict[tuple[str, int], dict[str, Any]] = {}
        self._found: dict[str, dict[int, tuple[str, float]]] = {}

    def epochs(self, name: str) -> dict[int, tuple[str, float]]:
        """Return hash and loss of each own epoch of a trial."""
        if name not in self._found:
            self._found[name] = self._train(self._trials[name])
        return self._found[name]

    def _train(self, trial: TrialRow) -> dict[int, tuple[str, float]]:
        made = Net(dict(trial.params))
        keys = trial.number if trial.origin_keys is None else trial.origin_keys
        training = loop.start(made, made.data(), self._seed, keys, self._shards)
        if trial.origin_trial is not None and trial.origin_epoch is not None:
            self.epochs(trial.origin_trial)
            state = self._states[trial.origin_trial, trial.origin_epoch]
            training.inherit(copy_on_device(state), trial.origin_epoch)  # it takes the tensors over
        found = {}
        while training.epoch < trial.epoch:
            metrics = loop.run_epoch(training, lambda *_: None).metrics
            found[training.epoch] = (training.hash(), metrics["loss"])
            self._states[trial.id, training.epoch] = copy_on_device(training.state())
        return found
