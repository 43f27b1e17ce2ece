"""The small real studies whose ledgers are recorded, as a user would write them.

python studies.py KIND
"""

from __future__ import annotations

import sys
import time

import penstock
import torch
from penstock import Float, FullBudget
from torch import nn
from torch.utils.data import TensorDataset

SPACE = {"lr": Float(1e-3, 1e-1, log=True), "width": [4, 8]}


class Net(penstock.TorchTrainable):
    """Points in four dimensions, labelled by the sign of their sum."""

    batch_size = 64

    def data(self) -> penstock.Data:
        x = torch.randn(256, 4, generator=torch.Generator().manual_seed(1))
        data = TensorDataset(x, (x.sum(1) > 0).long())
        return penstock.Data(data, data)

    def model(self) -> nn.Module:
        width = self.params.get("width", 8)
        return nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, 2))

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), lr=self.params["lr"])

    def loss(self, model: nn.Module, batch) -> torch.Tensor:
        return nn.functional.cross_entropy(model(batch[0]), batch[1])

    def metrics(self, model: nn.Module, batch) -> dict:
        return {"accuracy": (model(batch[0]).argmax(1) == batch[1]).float().mean()}


class Images(Net):
    """Pictures and a convolution, with steps that are long enough to be compared."""

    batch_size = 2

    def data(self) -> penstock.Data:
        x = torch.randn(256, 3, 12, 12, generator=torch.Generator().manual_seed(2))
        data = TensorDataset(x, (x.mean((1, 2, 3)) > 0).long())
        return penstock.Data(data, data)

    def model(self) -> nn.Module:
        return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(800, 2))


class Slow(Net):
    """A twentieth of a second a step, so that there is time to do something to it."""

    def loss(self, model: nn.Module, batch) -> torch.Tensor:
        time.sleep(0.05)
        return super().loss(model, batch)


@penstock.epoch_function
def adds(trial: penstock.EpochTrial) -> None:
    """A sum, which goes on from its checkpoint."""
    state = trial.load()
    total = state["total"] if state else 0.0
    for epoch in trial.epochs():
        total += trial.params["lr"] * epoch
        trial.report({"accuracy": total}, checkpoint={"total": total})


def parabola(trial):
    """An objective as Optuna has them, with a space that it says while it runs."""
    x = trial.suggest_float("x", -1, 1)
    kind = trial.suggest_categorical("kind", ["a", "b"])
    for step in range(3):
        trial.report(x * x + step, step)
    return x * x + (kind == "b")


def two_values(trial):
    """An objective of two values."""
    x = trial.suggest_float("x", 0, 1)
    return x, 1 - x * x


def optimize(kind, function, n_trials, strategy=None, space=SPACE, **fields):
    study = penstock.create_study(
        study_name=kind, seed=3, **{"metric": "accuracy", "direction": "maximize"} | fields,
        strategy=strategy,
    )  # fmt: skip
    study.optimize(function, space, n_trials=n_trials, show_progress=False)
    return study


def gangs():
    optimize("gangs", Net, 6, penstock.ASHA(max_epochs=9), shards=2, max_width=2)


def forks():
    strategy = penstock.PBT(max_epochs=6, interval=2)
    optimize("forks", Net, 4, strategy, sampler="random")


def tuning():
    optimize("tuning", Images, 6, FullBudget(4), sampler="random", system="tune")


def packing():
    optimize("packing", Net, 4, FullBudget(30), sampler="random")


def hyperband():
    optimize("hyperband", Net, 9, penstock.Hyperband(max_epochs=9), sampler="bohb")


def warm():
    optimize("first", Net, 4, FullBudget(2), sampler="tpe")
    strategy = penstock.SuccessiveHalving(max_epochs=4, eta=2)
    optimize("warm", Net, 6, strategy, sampler="tpe", warm_start="first")


def objectives():
    directions = {"directions": ["maximize", "minimize"]}
    study = penstock.create_study(study_name="objectives", seed=3, sampler="nsga2", **directions)
    study.optimize(two_values, n_trials=6, show_progress=False)


def drawn():
    study = penstock.create_study(study_name="drawn", sampler="random", seed=3)
    study.optimize(parabola, n_trials=5, show_progress=False)


def ask_tell():
    study = penstock.create_study(
        study_name="ask_tell", direction="maximize", sampler="tpe", seed=1
    )
    space = {"temperature": Float(150.0, 400.0), "catalyst": ["copper", "nickel"]}
    for number in range(8):
        trial = study.ask(space)
        if number == 5:
            study.tell(trial, state="fail")
        else:
            study.tell(trial, trial.params["temperature"] / 400.0)
    study.close()


def epochs():
    optimize("epochs", adds, 4, penstock.MedianStopping(max_epochs=6), sampler="random")


def slow():
    """Begun and left to run: the operator does something to it."""
    study = penstock.create_study(
        study_name="slow", metric="accuracy", direction="maximize", seed=3, sampler="random",
        strategy=FullBudget(10), shards=2, max_width=2,
    )  # fmt: skip
    study.submit(Slow, SPACE, n_trials=4)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
