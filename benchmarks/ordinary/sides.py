"""The sides of ``benchmarks.ordinary`` that are Penstock's, and how any side is run."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import penstock
import torch
import xgboost
from penstock.app.host.settings import Settings
from penstock.app.ledger.reader import Reader
from torch import nn
from torch.utils.data import TensorDataset

from ..lib.headline_sides import Curve, Job, scripted
from ..lib.studies import installation
from ..peers import _ordinary_work as work


@dataclass(frozen=True)
class Ran:
    """A study that ran: seconds in all, and (seconds, accuracy) of each epoch."""

    seconds: float
    curve: Curve
    #: The system configuration of the last epoch, in words; a peer has none.
    config: str = ""

    @property
    def best(self) -> float:
        """The highest accuracy of any epoch."""
        return max(accuracy for _, accuracy in self.curve)

    def area(self, until: float) -> float:
        """Return the mean over time, up to ``until`` (s), of the best accuracy so far; 0 before."""
        total, best, last = 0.0, 0.0, 0.0
        for at, accuracy in (*self.curve, (until, 0.0)):
            total += best * max(0.0, min(at, until) - last)
            best, last = max(best, accuracy), min(at, until)
        return total / until


class _Case(penstock.TorchTrainable):
    """A case of ``_ordinary_work`` for Penstock's loop. Each is code of its own."""

    case = ""
    batch_size = work.BATCH
    eval_batch_size = work.BATCH  # as every other side

    def data(self) -> penstock.Data:
        inputs, labels, judged, answers = work.data(self.case)
        return penstock.Data(TensorDataset(inputs, labels), TensorDataset(judged, answers))

    def model(self) -> nn.Module:
        return work.network(self.case)

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(
            model.parameters(),
            lr=self.params["lr"],
            momentum=work.MOMENTUM,
            weight_decay=self.params["decay"],
        )

    def loss(self, model: nn.Module, batch: Any) -> torch.Tensor:
        inputs, labels = batch
        return nn.functional.cross_entropy(model(inputs), labels)

    def metrics(self, model: nn.Module, batch: Any) -> dict[str, torch.Tensor]:
        inputs, labels = batch
        return {"accuracy": (model(inputs).argmax(1) == labels).float().mean()}


class Conv(_Case):
    case = "conv"


class Residual(_Case):
    case = "residual"


class Gpt(_Case):
    case = "gpt"


class Table(_Case):
    case = "table"


class Text(_Case):
    case = "text"


@penstock.epoch_function
def boosted(trial: Any) -> None:
    """XGBoost as ``docs/adapters.md`` has it."""
    train, judged = work.matrices()
    report = penstock.XGBoostCallback(trial, rounds=work.ROUNDS)
    xgboost.train(
        work.boosted(trial.params),
        train,
        num_boost_round=work.ROUNDS * work.EPOCHS,
        evals=[(judged, "validation")],
        verbose_eval=False,
        xgb_model=report.booster,
        callbacks=[report],
    )


CASES: dict[str, Any] = {
    **{each.case: each for each in (Conv, Residual, Gpt, Table, Text)},
    "boosted": boosted,
}
#: Penstock's sides: how system parameters are tuned. The small study that is run first is, where
#: they are, the first study of its workload.
SIDES: dict[str, Any] = {
    "default": "reuse",
    "tune": "tune",
    "precision": penstock.SystemTuning("tune", precision="auto"),
}
DEVICES = "cpu:2x1"


def run(side: str, jobs: list[Job]) -> list[Ran]:
    """Run each job's study by ``side``, in this order, after a small one of the same case."""
    if side in SIDES:
        with installation(DEVICES) as settings:
            return [_after_a_small_one(settings, SIDES[side], *job) for job in jobs]
    return [Ran(seconds, curve) for seconds, curve in scripted("ordinary", side, jobs)]


def _after_a_small_one(settings: Settings, system: Any, case: str, seed: int) -> Ran:
    small = work.points(seed + 1000, work.WARM_TRIALS)
    _study(settings, system, case, seed + 1000, small, work.WARM_EPOCHS)
    return _study(settings, system, case, seed, work.points(seed), work.EPOCHS)


def _study(
    settings: Settings, system: Any, case: str, seed: int, chosen: list[work.Point], epochs: int
) -> Ran:
    began = time.time()
    is_boosted = case == "boosted"
    study = penstock.create_study(
        metric="validation-merror" if is_boosted else "accuracy",
        direction="minimize" if is_boosted else "maximize",
        sampler="random",
        strategy=penstock.ASHA(max_epochs=epochs, eta=work.ETA),
        seed=seed,
        system="reuse" if is_boosted else system,  # XGBoost has a loop of its own
    )
    for point in chosen:
        study.enqueue_trial(point)
    space = {name: penstock.Float(*each, log=True) for name, each in work.BOUNDS.items()}
    study.optimize(CASES[case], space, len(chosen), show_progress=False, devices=settings.devices)
    seconds = time.time() - began
    rows = Reader(settings.ledger_url).epochs(study.id)
    config = ", ".join(f"{name} {value}" for name, value in rows[-1].system)
    accuracies = (
        1 - row.metrics["validation-merror"] if is_boosted else row.metrics["accuracy"]
        for row in rows
    )
    curve = sorted(zip((row.at - began for row in rows), accuracies, strict=True))
    return Ran(seconds, curve, config or "default")
