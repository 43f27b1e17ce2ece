"""Whole studies on a real GPU: one trial at a time, in slots, in lanes, and in a plain loop.

Both nets train on MNIST's first images: LeNet-5, whose steps leave most of a GPU idle, and a
residual net. Trials differ in their learning rate. A side of Penstock is an installation of its
own, in which a small study comes first, so that trainers are there and have the data. The plain
loop trains the same nets one after another in one process, with the same deterministic kernels;
its data are in memory, and each training takes them to the GPU at its beginning.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

import penstock
import torch
from penstock.app.host.settings import Settings
from penstock.app.ledger.reader import Reader
from penstock.tasks.training.determinism import configure
from torch import Tensor, nn

from testkit.data import mnist_is_here

from ..lib.lenet import LeNet
from ..lib.studies import installation

#: Ways to share a GPU. The first one, a trial at a time, is the baseline.
SIDES, QUICK = ("", "*2", "*4", "*1x4", "*2x2"), ("", "*4", "*1x4")
TRIALS, EPOCHS, EXAMPLES = 12, 3, 10_000

#: (hash, metrics) by (learning rate, epoch).
Bits = dict[tuple[float, int], tuple[str, dict[str, float]]]


class ResNet(LeNet):
    """Four residual blocks of 64 to 128 channels."""

    def model(self) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(1, 64, 3, padding=1, bias=False),
            nn.BatchNorm2d(64),
            nn.ReLU(),
            Block(64, 64, 1),
            Block(64, 128, 2),
            Block(128, 128, 1),
            Block(128, 128, 2),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(128, 10),
        )


class Block(nn.Module):
    """Two convolutions with normalisation and a shortcut (He et al., CVPR 2016)."""

    def __init__(self, taken: int, given: int, stride: int) -> None:
        super().__init__()
        self.path = nn.Sequential(
            nn.Conv2d(taken, given, 3, stride, 1, bias=False),
            nn.BatchNorm2d(given),
            nn.ReLU(),
            nn.Conv2d(given, given, 3, 1, 1, bias=False),
            nn.BatchNorm2d(given),
        )
        same = stride == 1 and taken == given
        self.shortcut = nn.Identity() if same else nn.Conv2d(taken, given, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Images of the block's given channels."""
        return torch.relu(self.path(x) + self.shortcut(x))


NETS = {"lenet": LeNet, "resnet": ResNet}


def live_figures(device: str, *, quick: bool, nets: Sequence[str]) -> dict[str, Any]:
    """Seconds by net and side; how many epochs of any side are not those of one at a time.

    ``device`` is what is shared, as ``gpu:0``.
    """
    if not mnist_is_here():
        return {"skipped": "PENSTOCK_DATA has no MNIST"}
    trials = TRIALS // 2 if quick else TRIALS
    figures: dict[str, Any] = {"trials": trials, "epochs": EPOCHS, "examples": EXAMPLES}
    for net in nets:
        figures[f"{net}.plain_s"] = plain_loop(net, rates(trials))
        print(f"{net} {figures[f'{net}.plain_s']:.2f} s in a plain loop", flush=True)
    first: dict[str, Bits] = {}
    wrong = compared = 0
    for devices in (f"{device}{side}" for side in (QUICK if quick else SIDES)):
        for net, (seconds, bits) in _on(devices, trials, nets).items():
            figures[f"{net}.{devices}_s"] = seconds
            alone = first.setdefault(net, bits)
            wrong += sum(bits.get(place) != alone[place] for place in alone)
            compared += len(alone)
            print(f"{net} {seconds:.2f} s on {devices}", flush=True)
    return figures | {"mismatches": wrong, "compared": compared}


def rates(trials: int) -> list[float]:
    """Return ``trials`` learning rates."""
    return [round(0.005 * 1.3**n, 5) for n in range(trials)]


def _on(devices: str, trials: int, nets: Sequence[str]) -> dict[str, tuple[float, Bits]]:
    """Seconds of a study of each net there, and its bits."""
    with installation(devices) as settings:
        return {net: _study(settings, net, trials) for net in nets}


def _study(settings: Settings, net: str, trials: int) -> tuple[float, Bits]:
    for chosen, epochs in ((rates(4), 1), (rates(trials), EPOCHS)):
        began = time.perf_counter()
        study = penstock.create_study(
            metric="accuracy",
            direction="maximize",
            sampler="grid",
            seed=0,
            strategy=penstock.FullBudget(epochs),
        )
        study.optimize(NETS[net], _space(chosen), show_progress=False, devices=settings.devices)
        seconds = time.perf_counter() - began
    reader = Reader(settings.ledger_url)
    lr = {row.id: float(row.params["lr"]) for row in reader.trials(study.id)}
    rows = reader.epochs(study.id)
    return seconds, {(lr[row.trial], row.epoch): (row.state_hash, row.metrics) for row in rows}


def _space(chosen: Iterable[float]) -> dict[str, list[float]]:
    return {"lr": list(chosen), "momentum": [0.9], "batch_size": [64], "examples": [EXAMPLES]}


def plain_loop(net: str, chosen: list[float]) -> float:
    """Seconds of the same trainings in a plain loop; the first one, which warms up, runs twice."""
    configure()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    for lrs in (chosen[:1], chosen):
        began = time.perf_counter()
        for lr in lrs:
            _train(net, lr, device)
        seconds = time.perf_counter() - began
    return seconds


def _tensors(examples: Any, device: torch.device) -> list[Tensor]:
    chosen = list(examples.indices)
    return [each[chosen].to(device) for each in examples.dataset.tensors]


def _train(net: str, lr: float, device: torch.device) -> None:
    code = NETS[net]({"lr": lr, "momentum": 0.9, "batch_size": 64, "examples": EXAMPLES})
    data = code.data()
    images, labels = _tensors(data.train, device)
    judged, answers = _tensors(data.validation, device)
    model = code.model().to(device)
    optimizer = code.optimizer(model)
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(labels), device=device).split(code.batch_size):
            optimizer.zero_grad()
            code.loss(model, (images[batch], labels[batch])).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            found = [
                code.metrics(model, batch)["accuracy"]
                for batch in zip(judged.split(64), answers.split(64), strict=True)
            ]
        float(torch.stack(found).mean())
        model.train()
