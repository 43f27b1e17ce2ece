"""Training code of several kinds, whose trials are stepped together, and drives of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import penstock
import torch
from penstock.extensions.fusion.epoch import Row
from penstock.tasks.system.system import System
from penstock.tasks.training import loop
from penstock.tasks.training.training import Training
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.utils.data import TensorDataset

OPTIMIZERS = {
    "sgd": lambda ps, p: torch.optim.SGD(ps, p["lr"], weight_decay=p.get("wd", 0)),
    "momentum": lambda ps, p: torch.optim.SGD(
        ps, p["lr"], momentum=p.get("momentum", 0.9), weight_decay=p.get("wd", 0)
    ),
    "nesterov": lambda ps, p: torch.optim.SGD(ps, p["lr"], momentum=0.8, nesterov=True),
    "adam": lambda ps, p: torch.optim.Adam(
        ps, p["lr"] / 10, betas=p.get("betas", (0.9, 0.999)), weight_decay=p.get("wd", 0)
    ),
    "adamw": lambda ps, p: torch.optim.AdamW(
        ps, p["lr"] / 10, betas=p.get("betas", (0.9, 0.999)), weight_decay=p.get("wd", 0.01)
    ),
    "amsgrad": lambda ps, p: torch.optim.Adam(ps, p["lr"] / 10, amsgrad=True),
    "rmsprop": lambda ps, p: torch.optim.RMSprop(ps, p["lr"] / 10),
}


def _data(shape: tuple[int, ...], classes: int, examples: int) -> penstock.Data:
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(examples, *shape, generator=generator)
    y = (x.flatten(1)[:, :3].sum(1) * 2).long().abs() % classes
    cut = examples * 3 // 4
    part = (examples - cut) // 2
    return penstock.Data(
        TensorDataset(x[:cut], y[:cut]),
        TensorDataset(x[cut : cut + part], y[cut : cut + part]),
        TensorDataset(x[cut + part :], y[cut + part :]),
    )


ROWS, IMAGES = _data((20,), 3, 150), _data((3, 12, 12), 3, 60)


class Mlp(penstock.TorchTrainable):
    """Two hidden layers; 112 examples in batches of 32, so that the last one is smaller."""

    batch_size = 32
    eval_batch_size = 11
    source = ROWS

    def data(self) -> penstock.Data:
        return self.source

    def model(self) -> nn.Module:
        return nn.Sequential(
            nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 3)
        )

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return OPTIMIZERS[self.params.get("opt", "momentum")](model.parameters(), self.params)

    def loss(self, model: nn.Module, batch: Any) -> torch.Tensor:
        x, y = batch
        return F.cross_entropy(model(x), y)

    def metrics(self, model: nn.Module, batch: Any) -> Mapping[str, Any]:
        x, y = batch
        return {"accuracy": (model(x).argmax(1) == y).float().mean()}


class Dropout(Mlp):
    def model(self):
        p = self.params.get("p", 0.3)
        return nn.Sequential(
            nn.Linear(20, 32),
            nn.ReLU(),
            nn.Dropout(p),
            nn.Linear(32, 3, bias=False),
            nn.Dropout(0.1),
        )


class LeNet(Mlp):
    source = IMAGES
    batch_size = 16

    def model(self):
        return nn.Sequential(
            nn.Conv2d(3, 6, 3),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(6, 8, 3),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(72, 20),
            nn.ReLU(),
            nn.Linear(20, 3),
        )


class BatchNorm(Mlp):
    source = IMAGES
    batch_size = 16

    def model(self):
        return nn.Sequential(
            nn.Conv2d(3, 8, 3, bias=False),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.Conv2d(8, 8, 3, groups=8),
            nn.AvgPool2d(2),
            nn.Flatten(),
            nn.Linear(128, 16),
            nn.BatchNorm1d(16),
            nn.Linear(16, 3),
        )


class Transformer(Mlp):
    batch_size = 16

    class Net(nn.Module):
        def __init__(self, dropout: float) -> None:
            super().__init__()
            self.embed = nn.Linear(4, 16)
            self.encoder = nn.TransformerEncoderLayer(16, 2, 32, dropout, batch_first=True)
            self.head = nn.Linear(16, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            tokens = self.embed(x.view(-1, 5, 4))
            return self.head(self.encoder(tokens).mean(1))

    def model(self):
        return self.Net(self.params.get("p", 0.0))


class Clipped(Mlp):
    def clip(self, model):
        nn.utils.clip_grad_norm_(model.parameters(), self.params["clip"])


class Unused(Mlp):
    """A parameter has no gradient, and another one wants none."""

    def model(self):
        made = super().model()
        made[0].bias.requires_grad_(False)
        made.spare = nn.Identity()
        made.spare.weight = nn.Parameter(torch.zeros(3))
        return made


class Penalised(Mlp):
    """Its loss goes through the model's parameters, and is of several labels."""

    def loss(self, model, batch):
        x, y = batch
        labels = F.one_hot(y, 3).float()
        penalty = sum(parameter.pow(2).sum() for parameter in model.parameters())
        return F.binary_cross_entropy_with_logits(model(x), labels) + 1e-3 * penalty


class Embedded(Mlp):
    source = penstock.Data(
        *(
            TensorDataset((each.tensors[0] * 9).long().abs() % 50, each.tensors[1])
            for each in (ROWS.train, ROWS.validation)
        )
    )

    def model(self):
        return nn.Sequential(
            *(nn.Embedding(50, 4), nn.Flatten(), nn.LayerNorm(80), nn.GELU(), nn.Linear(80, 3))
        )


class Scheduled(Mlp):
    def schedule(self, optimizer):
        return torch.optim.lr_scheduler.StepLR(optimizer, 2, self.params["gamma"])


class Plateau(Mlp):
    def schedule(self, optimizer):
        return torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0)


class Items(Mlp):
    """Metrics that are numbers, which cannot be had for all at once."""

    def metrics(self, model, batch):
        x, y = batch
        return {"accuracy": (model(x).argmax(1) == y).float().mean().item()}


class Fails(Mlp):
    """Its loss is not finite, or raises, from an epoch on that differs."""

    def loss(self, model, batch):
        loss = super().loss(model, batch)
        if self.now("bad") == "raise":
            raise ArithmeticError("too bad")
        return loss * float("nan") if self.now("bad") == "nan" else loss


class ClipFails(Mlp):
    def clip(self, model):
        if self.now("bad") == "raise":
            raise ArithmeticError("a bad clip")


class Smoothed(Mlp):
    """Its loss reads a hyperparameter."""

    def loss(self, model, batch):
        x, y = batch
        return F.cross_entropy(model(x), y, label_smoothing=self.params["smoothing"])


class Criterion(Mlp):
    """Its loss reads an attribute, and its optimiser has two groups."""

    def __init__(self, params):
        super().__init__(params)
        self.criterion = nn.CrossEntropyLoss()

    def optimizer(self, model):
        groups = [
            {"params": model[0].parameters()},
            {"params": [*model[2].parameters(), *model[4].parameters()], "lr": 0.01},
        ]
        return OPTIMIZERS["momentum"](groups, self.params)

    def loss(self, model, batch):
        x, y = batch
        return self.criterion(model(x), y)


def trial(
    code: type[penstock.TorchTrainable],
    number: int,
    params: Mapping[str, Any],
    seed: int = 3,
    shards: int = 1,
    **system: Any,
) -> Training:
    """A trial before its first epoch, under a system configuration."""
    made = code(dict(params))
    here, knobs = loop.device_here(), System(system)
    return loop.start(made, made.data(), seed, number, shards, device=here, system=knobs)


def params(n: int, **more: Any) -> dict[str, Any]:
    """Hyperparameters that differ from trial to trial."""
    return {"lr": 0.02 * (n + 1), "wd": 0.001 * n, "momentum": 0.9 - 0.05 * n, **more}


def quiet(epoch: int, step: int, steps: int) -> None:
    """A tick that lets an epoch go on."""


def rows(runs: list[Training], tick: Callable[[int, int, int], None] = quiet) -> list[Row]:
    return [Row(run, tick) for run in runs]
