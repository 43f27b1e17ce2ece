"""The training of every side of ``python -m benchmarks.headline``. Imports nothing of any system.

A study has 81 configurations: a schedule of three pieces of nine epochs each, with three learning
rates a piece, and three weight decays. Its network and data are those of a case: (a) an MLP on
digits, (b) an MLP on MNIST's first 10,000 images, (c) LeNet-5 on CIFAR-10's first 2,000.
"""

from __future__ import annotations

import gzip
import importlib.util
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from functools import cache
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

BATCH, EPOCHS, PIECE, MOMENTUM, ETA = 64, 27, 9, 0.9, 3
RATES = ((0.1, 0.05, 0.02), (0.05, 0.02, 0.01), (0.01, 0.005, 0.001))
DECAYS = (0.0, 1e-4, 1e-3)
#: The files of each case, below the folder that PENSTOCK_DATA names.
FILES = {
    "a": (),
    "b": ("mnist/train-images-idx3-ubyte.gz", "mnist/train-labels-idx1-ubyte.gz"),
    "c": ("cifar10/data_batch_1.bin.gz",),
}
#: Examples that a trial trains on, and those that it is judged by, which follow them.
SPLITS = {"a": (1297, 500), "b": (10_000, 2_000), "c": (2_000, 1_000)}

Point = dict[str, float]
#: Trains (case, seed, configurations, epochs of a trial at most); epochs are noted in the folder.
Study = Callable[[str, int, list[Point], int, str], None]


def points(seed: int) -> list[Point]:
    """The configurations, in an order that ``seed`` draws: ``lr0``, ``lr1``, ``lr2``, ``decay``."""
    names = ("lr0", "lr1", "lr2", "decay")
    found = [dict(zip(names, each, strict=True)) for each in product(*RATES, DECAYS)]
    Random(f"headline {seed}").shuffle(found)
    return found


def files_here(case: str) -> bool:
    """Return True if the data of the case exists."""
    return all((_folder() / name).exists() for name in FILES[case])


@cache
def data(case: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Training examples and labels, then those for judging."""
    inputs, labels = {"a": _digits, "b": _mnist, "c": _cifar}[case]()
    train, judged = SPLITS[case]
    last = train + judged
    return inputs[:train], labels[:train], inputs[train:last], labels[train:last]


def network(case: str) -> nn.Module:
    """The case's network, freshly drawn."""
    if case != "c":
        inputs, hidden = (64, 32) if case == "a" else (784, 128)
        return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, 10))
    return nn.Sequential(
        nn.Conv2d(3, 6, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(400, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, 10),
    )


class Training:
    """One trial in a plain PyTorch loop on one thread; each epoch is noted in ``log``."""

    def __init__(self, case: str, point: Point, seed: int, log: str) -> None:
        torch.set_num_threads(1)
        torch.manual_seed(seed)
        self.case, self.point, self.log, self.epoch = case, point, log, 0
        self.model = network(case)
        self.optimizer = torch.optim.SGD(
            self.model.parameters(), lr=0.0, momentum=MOMENTUM, weight_decay=point["decay"]
        )

    def run_epoch(self) -> float:
        """Train for an epoch; the accuracy on the examples for judging."""
        inputs, labels, judged, answers = data(self.case)
        for group in self.optimizer.param_groups:
            group["lr"] = self.point[f"lr{self.epoch // PIECE}"]
        self.model.train()
        for batch in torch.randperm(len(labels)).split(BATCH):
            self.optimizer.zero_grad()
            nn.functional.cross_entropy(self.model(inputs[batch]), labels[batch]).backward()
            self.optimizer.step()
        self.model.eval()
        with torch.no_grad():
            accuracy = float((self.model(judged).argmax(1) == answers).float().mean())
        self.epoch += 1
        with (Path(self.log) / str(os.getpid())).open("a") as file:
            file.write(json.dumps([time.time(), accuracy]) + "\n")
        return accuracy

    def save(self, file: Path) -> None:
        """Save what the next epoch begins from."""
        torch.save((self.epoch, self.model.state_dict(), self.optimizer.state_dict()), file)

    def load(self, file: Path) -> None:
        """Go on from what ``save`` has saved."""
        self.epoch, model, optimizer = torch.load(file, weights_only=True)
        self.model.load_state_dict(model)
        self.optimizer.load_state_dict(optimizer)


def session(study: Study) -> None:
    """Run the studies of the command line's plan; write what they did.

        python benchmarks/peers/headline_SYSTEM.py PLAN OUT

    The plan is JSON: (case, seed) pairs. Before each a small study is run, so that the processes
    have loaded code and data.
    """
    found = []
    for case, seed in json.loads(Path(sys.argv[1]).read_text()):
        for chosen, epochs in ((points(seed)[:4], 2), (points(seed), EPOCHS)):
            with tempfile.TemporaryDirectory() as log:
                began = time.time()
                study(case, seed, chosen, epochs, log)
                ran = noted(Path(log), began)
        found.append(ran)
    Path(sys.argv[2]).write_text(json.dumps(found))


def noted(log: Path, began: float) -> dict[str, Any]:
    """Return seconds of a study in all, and (seconds, accuracy) of its epochs."""
    ended = time.time()
    lines = [line for file in log.iterdir() for line in file.read_text().splitlines()]
    curve = sorted((at - began, accuracy) for at, accuracy in map(json.loads, lines))
    return {"seconds": ended - began, "curve": curve}


def _folder() -> Path:
    given = os.environ.get("PENSTOCK_DATA")
    cache_folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(given) if given else cache_folder / "penstock"


def _bytes(name: str) -> np.ndarray:
    return np.frombuffer(gzip.decompress((_folder() / name).read_bytes()), np.uint8)


def digits_file() -> Path:
    """scikit-learn's file; a peer's environment has none, and is told of it by a variable."""
    if given := os.environ.get("HEADLINE_DIGITS"):
        return Path(given)
    package = importlib.util.find_spec("sklearn")
    if package is None or package.origin is None:
        raise FileNotFoundError("digits are scikit-learn's, which is not installed")
    return Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz"


def _digits() -> tuple[Tensor, Tensor]:
    table = np.loadtxt(digits_file(), delimiter=",")
    pixels = torch.tensor(table[:, :-1] / 16, dtype=torch.float32)
    return pixels, torch.tensor(table[:, -1], dtype=torch.int64)


def _mnist() -> tuple[Tensor, Tensor]:
    images, labels = FILES["b"]
    pixels = _bytes(images)[16:].reshape(-1, 784)[: sum(SPLITS["b"])]
    answers = _bytes(labels)[8:][: len(pixels)]
    scaled = torch.tensor(pixels / 255, dtype=torch.float32)
    return scaled, torch.tensor(answers, dtype=torch.int64)


def _cifar() -> tuple[Tensor, Tensor]:
    rows = _bytes(FILES["c"][0]).reshape(-1, 3073)[: sum(SPLITS["c"])]
    pixels = torch.tensor(rows[:, 1:] / 255 - 0.5, dtype=torch.float32).reshape(-1, 3, 32, 32)
    return pixels, torch.tensor(rows[:, 0], dtype=torch.int64)
