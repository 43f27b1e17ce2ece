"""The grid of schedules by Optuna: each trial in a plain loop, on one thread."""

from __future__ import annotations

from functools import cache, partial
from math import prod
from typing import Any

import optuna
import penstock
import torch

from testkit.digits import SteppedNet

from ..lib.optuna_sides import Work
from .studies import BATCH, PIECE, RATES

NAMES = [f"piece{number}" for number in range(len(RATES))]


@cache
def _data() -> penstock.Data:
    return SteppedNet({}).data()


def objective(trial: optuna.Trial) -> float:
    """Accuracy after the last piece."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rates = [trial.suggest_categorical(*each) for each in zip(NAMES, RATES, strict=True)]
    code = SteppedNet({"lr": rates[0], "hidden": 64, "dropout": 0.2})
    data, model = _data(), code.model()
    optimizer = code.optimizer(model)
    pixels, labels = data.train.tensors
    accuracy = 0.0
    for rate in rates:
        for group in optimizer.param_groups:
            group["lr"] = rate
        for _ in range(PIECE):
            for batch in torch.randperm(len(labels)).split(BATCH):
                optimizer.zero_grad()
                code.loss(model, (pixels[batch], labels[batch])).backward()
                optimizer.step()
            model.eval()
            with torch.no_grad():
                accuracy = float(code.metrics(model, data.validation.tensors)["accuracy"])
            model.train()
    return accuracy


def work() -> Work:
    """The study, as many trials as the grid has points."""
    points: dict[str, Any] = dict(zip(NAMES, RATES, strict=True))
    sampler = partial(optuna.samplers.GridSampler, points)
    return Work(objective, prod(map(len, RATES)), sampler, others={"direction": "maximize"})
