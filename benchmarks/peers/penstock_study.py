"""Penstock's part of ``python -m benchmarks.peers``: run by its own environment's Python.

As it is by default: services of their own, a ledger and checkpoints on disk, a Celery worker a
device. With ``--seats`` each device is a lane of 32, in which trials are trained together where
that pays.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))  # trainers load this file, too

import penstock
import torch
from _session import CORES, ETA, session
from _training import BATCH, curve, examples, network
from penstock.app.host.locks import pid_of
from penstock.app.host.settings import load
from penstock.app.ledger.reader import Reader
from penstock.app.server.services import services
from torch import nn
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import TensorDataset

SEATS = "*1x32" if sys.argv[-1] == "--seats" else ""


class Trial(penstock.TorchTrainable):
    """``Training`` for Penstock's loop; its schedule, which changes nothing, knows the epoch."""

    batch_size = BATCH
    net = "conv"

    def data(self) -> penstock.Data:
        inputs, labels = examples(self.net, self.params["steps"])
        return penstock.Data(
            train=TensorDataset(inputs, labels),
            validation=TensorDataset(inputs[:BATCH], labels[:BATCH]),
        )

    def model(self) -> nn.Module:
        return network(self.net)

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), lr=self.params["lr"])

    def schedule(self, optimizer: torch.optim.Optimizer) -> LambdaLR:
        self.epochs = LambdaLR(optimizer, lambda _: 1.0)
        return self.epochs

    def loss(self, model: nn.Module, batch: Any) -> torch.Tensor:
        inputs, labels = batch
        return nn.functional.cross_entropy(model(inputs), labels)

    def metrics(self, model: nn.Module, batch: Any) -> dict[str, torch.Tensor]:
        model(batch[0])
        epoch = self.epochs.last_epoch + 1  # it steps after the evaluation
        return {"loss": torch.tensor(curve(self.params["lr"], epoch), dtype=torch.float64)}


class Mlp(Trial):
    """Reports its real loss: under random search nothing depends on the values.

    What ``Trial`` reports has its learning rate in it, so no two of them are evaluated together.
    """

    net = "mlp"

    def schedule(self, optimizer: torch.optim.Optimizer) -> None:
        """None."""

    def metrics(self, model: nn.Module, batch: Any) -> dict[str, torch.Tensor]:
        return {"loss": self.loss(model, batch)}


TRIALS = {"conv": Trial, "mlp": Mlp}


def strategy(tuner: str, epochs: int) -> Any:
    """Penstock's own of that name."""
    if tuner == "asha":
        return penstock.ASHA(max_epochs=epochs, eta=ETA)
    if tuner == "hyperband":
        return penstock.Hyperband(max_epochs=epochs, eta=ETA)
    return penstock.FullBudget(epochs)


def main() -> None:
    """Start the services, run the plan."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.environ["PENSTOCK_HOME"] = f"{folder}/home"
        os.environ["PENSTOCK_DEVICES"] = f"cpu:{CORES}x1{SEATS}"
        settings = load()

        def study(job: dict[str, Any], log: Path) -> None:
            made = penstock.create_study(
                metric="loss", sampler="random", strategy=strategy(job["tuner"], job["epochs"])
            )
            for lr in job["lrs"]:
                made.enqueue_trial({"lr": lr})
            space = {"lr": penstock.Float(1e-5, 1.0, log=True), "steps": [job["steps"]]}
            made.optimize(TRIALS[job["net"]], space, len(job["lrs"]), show_progress=False)
            rows = Reader(settings.ledger_url).epochs(made.id)
            spans = "".join(f"[{row.at - row.seconds}, {row.at}]\n" for row in rows)
            (log / "ledger").write_text(spans)

        def pids() -> list[int]:
            names = ("broker", "scheduler", "agent")
            return [os.getpid(), *filter(None, (pid_of(settings.run, name) for name in names))]

        try:
            session(study, pids, Path(folder))
        finally:
            services.take_down(settings)


if __name__ == "__main__":
    main()
