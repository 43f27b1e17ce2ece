"""The work of every side of ``python -m benchmarks.ordinary``. Imports nothing of any system.

Studies as people write them: 27 configurations of a learning rate and a weight decay under ASHA to
nine epochs, without schedules that trials could share. The cases are fixed:

- ``conv``: a small convolution net on 4,000 of CIFAR-10's images;
- ``residual``: a small residual net with batch normalisation on 2,000 of them;
- ``gpt``: a transformer of two layers on 1,000 pieces of 64 bytes of WikiText-2;
- ``table``: an MLP on scikit-learn's digits as a table of 64 columns;
- ``text``: a bag of hashed words, embedded, on 4,000 messages of 20 Newsgroups;
- ``boosted``: XGBoost on the table of ``table``, of which five rounds are an epoch.
"""

from __future__ import annotations

import gzip
import json
import math
import os
import sys
import tarfile
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from functools import cache
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

if __package__:
    from ._headline_work import digits_file, noted
else:  # a peer's script runs in this folder
    from _headline_work import digits_file, noted

BATCH, EPOCHS, TRIALS, ETA = 64, 9, 27, 3
MOMENTUM = 0.9
#: The bounds of each hyperparameter, which is drawn by its logarithm.
BOUNDS = {"lr": (1e-3, 0.2), "decay": (1e-6, 1e-3)}
#: Configurations and epochs of the study that is run first, so that everything is warm.
WARM_TRIALS, WARM_EPOCHS = 4, 3
#: The files of each case, below the folder that PENSTOCK_DATA names.
FILES = {
    "conv": ("cifar10/data_batch_1.bin.gz",),
    "residual": ("cifar10/data_batch_1.bin.gz",),
    "gpt": ("wikitext2/valid.txt",),
    "table": (),
    "text": ("news20/20news-bydate.tar.gz",),
    "boosted": (),
}
#: Examples that a trial trains on, and those that it is judged by, which follow them.
SPLITS = {
    "conv": (4_000, 1_000),
    "residual": (2_000, 500),
    "gpt": (1_000, 250),
    "table": (1_297, 500),
    "text": (4_000, 1_000),
    "boosted": (1_297, 500),
}
#: Boosting rounds of an epoch.
ROUNDS = 5
#: Bytes of a piece of text, numbers of a message, words that are told apart.
CONTEXT, WORDS, VOCABULARY = 64, 128, 20_000

Point = dict[str, float]
#: Trains (case, seed, configurations, epochs of a trial at most); epochs are noted in the folder.
Study = Callable[[str, int, list[Point], int, str], None]


def points(seed: int, n: int = TRIALS) -> list[Point]:
    """Return ``n`` configurations that ``seed`` draws: ``lr`` and ``decay``."""
    chance = Random(f"ordinary {seed}")
    return [
        {n: math.exp(chance.uniform(math.log(a), math.log(b))) for n, (a, b) in BOUNDS.items()}
        for _ in range(n)
    ]


def files_here(case: str) -> bool:
    """Tell whether the data of the case is here."""
    return all((_folder() / name).exists() for name in FILES[case])


@cache
def data(case: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return training examples and labels, then those for judging."""
    readers = {"conv": _cifar, "residual": _cifar, "gpt": _text, "text": _news}
    read = readers.get(case, _digits)
    train, judged = SPLITS[case]
    inputs, labels = read(train + judged)
    return inputs[:train], labels[:train], inputs[train:], labels[train:]


class Residual(nn.Module):
    """Two convolutions with batch normalisation, whose output is added to the input."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
        )

    def forward(self, given: Tensor) -> Tensor:
        """Return activations of the same shape."""
        return torch.relu(given + self.inner(given))


class Block(nn.Module):
    """Causal attention and an MLP, each after a layer normalisation."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.queries, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.inner = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, given: Tensor) -> Tensor:
        """Return activations of the same shape (batch, length, width)."""
        batch, length, width = given.shape
        parts = self.queries(self.before(given)).view(batch, length, 3, self.heads, -1)
        queries, keys, values = parts.permute(2, 0, 3, 1, 4)
        mask = torch.ones(length, length, dtype=torch.bool).tril()
        scores = queries @ keys.transpose(-1, -2) / math.sqrt(width / self.heads)
        seen = scores.masked_fill(~mask, -1e4).softmax(-1) @ values
        given = given + self.out(seen.transpose(1, 2).reshape(batch, length, width))
        return given + self.inner(self.between(given))


class Gpt(nn.Module):
    """A language model of bytes: two blocks of width 64."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes, self.places = nn.Embedding(256, 64), nn.Embedding(CONTEXT, 64)
        self.blocks = nn.Sequential(Block(64, 4), Block(64, 4), nn.LayerNorm(64))
        self.head = nn.Linear(64, 256)

    def forward(self, given: Tensor) -> Tensor:
        """Return scores of the next byte (batch, 256, length)."""
        inner = self.bytes(given) + self.places(torch.arange(given.shape[1]))
        return self.head(self.blocks(inner)).transpose(1, 2)


class Bag(nn.Module):
    """The mean of the embedded words, then an MLP."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, 64)
        self.inner = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 20))

    def forward(self, given: Tensor) -> Tensor:
        """Return scores of the 20 groups."""
        return self.inner(self.words(given).mean(1))


def network(case: str) -> nn.Module:
    """Return the case's network, freshly drawn."""
    if case == "conv":
        return nn.Sequential(
            *_convolution(3, 16), *_convolution(16, 32), *_convolution(32, 32),
            nn.Flatten(), nn.Linear(32 * 16, 10),
        )  # fmt: skip
    if case == "residual":
        return nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), Residual(16), Residual(16),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10),
        )  # fmt: skip
    if case == "table":
        return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    return Gpt() if case == "gpt" else Bag()


def _convolution(before: int, after: int) -> tuple[nn.Module, ...]:
    return nn.Conv2d(before, after, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)


class Training:
    """One trial in a plain PyTorch loop on one thread; each epoch is noted in ``log``."""

    def __init__(self, case: str, point: Point, seed: int, log: str) -> None:
        torch.set_num_threads(1)
        torch.manual_seed(seed)
        self.case, self.log = case, log
        self.model = network(case)
        self.optimizer = torch.optim.SGD(
            self.model.parameters(), lr=point["lr"], momentum=MOMENTUM, weight_decay=point["decay"]
        )

    def run_epoch(self) -> float:
        """Train for an epoch; return the accuracy on the examples for judging."""
        inputs, labels, judged, answers = data(self.case)
        self.model.train()
        for batch in torch.randperm(len(labels)).split(BATCH):
            self.optimizer.zero_grad()
            nn.functional.cross_entropy(self.model(inputs[batch]), labels[batch]).backward()
            self.optimizer.step()
        self.model.eval()
        right, count = 0, 0
        with torch.no_grad():
            for some, wanted in zip(judged.split(BATCH), answers.split(BATCH), strict=True):
                right += int((self.model(some).argmax(1) == wanted).sum())
                count += wanted.numel()
        return _noted(self.log, right / count)

    def save(self, file: Path) -> None:
        """Save what the next epoch begins from."""
        torch.save((self.model.state_dict(), self.optimizer.state_dict()), file)

    def load(self, file: Path) -> None:
        """Go on from what ``save`` has saved."""
        model, optimizer = torch.load(file, weights_only=True)
        self.model.load_state_dict(model)
        self.optimizer.load_state_dict(optimizer)


class Boosting:
    """One trial of XGBoost on one thread, by its own loop without a callback."""

    def __init__(self, point: Point, log: str) -> None:
        import xgboost

        self.log, self.rounds = log, 0
        self.booster = xgboost.Booster({**boosted(point), "nthread": 1}, [matrices()[0]])

    def run_epoch(self) -> float:
        """Boost for an epoch's rounds; return the accuracy on the examples for judging."""
        train, judged = matrices()
        for _ in range(ROUNDS):
            self.booster.update(train, self.rounds)
            self.rounds += 1
        wrong = self.booster.eval(judged).rpartition(":")[2]
        return _noted(self.log, 1 - float(wrong))

    def save(self, file: Path) -> None:
        """Save what the next epoch begins from."""
        file.write_bytes(self.booster.save_raw("ubj"))

    def load(self, file: Path) -> None:
        """Go on from what ``save`` has saved."""
        self.booster.load_model(bytearray(file.read_bytes()))
        self.rounds = self.booster.num_boosted_rounds()


def training(case: str, point: Point, seed: int, log: str) -> Training | Boosting:
    """Return one trial of the case, trained without any system."""
    return Boosting(point, log) if case == "boosted" else Training(case, point, seed, log)


def boosted(point: Point) -> dict[str, Any]:
    """Return XGBoost's parameters but for the number of threads."""
    names = {"objective": "multi:softmax", "num_class": 10, "eval_metric": "merror"}
    return {**names, "eta": point["lr"], "lambda": point["decay"]}


@cache
def matrices() -> tuple[Any, Any]:
    """Return XGBoost's matrices for training and for judging."""
    import xgboost

    inputs, labels, judged, answers = (each.numpy() for each in data("boosted"))
    return xgboost.DMatrix(inputs, labels), xgboost.DMatrix(judged, answers)


def _noted(log: str, accuracy: float) -> float:
    with (Path(log) / str(os.getpid())).open("a") as file:
        file.write(json.dumps([time.time(), accuracy]) + "\n")
    return accuracy


def session(study: Study) -> None:
    """Run the studies of the command line's plan, each after a small one; write what they did.

        python benchmarks/peers/ordinary_SYSTEM.py PLAN OUT

    The plan is JSON: (case, seed) pairs.
    """
    found = []
    for case, seed in json.loads(Path(sys.argv[1]).read_text()):
        warm = points(seed + 1000, WARM_TRIALS), WARM_EPOCHS
        for chosen, epochs in (warm, (points(seed), EPOCHS)):
            with tempfile.TemporaryDirectory() as log:
                began = time.time()
                study(case, seed, chosen, epochs, log)
                ran = noted(Path(log), began)
        found.append(ran)
    Path(sys.argv[2]).write_text(json.dumps(found))


def _folder() -> Path:
    given = os.environ.get("PENSTOCK_DATA")
    cache_folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(given) if given else cache_folder / "penstock"


def _cifar(n: int) -> tuple[Tensor, Tensor]:
    raw = gzip.decompress((_folder() / FILES["conv"][0]).read_bytes())
    rows = np.frombuffer(raw, np.uint8).reshape(-1, 3073)[:n]
    pixels = torch.tensor(rows[:, 1:] / 255 - 0.5, dtype=torch.float32).reshape(-1, 3, 32, 32)
    return pixels, torch.tensor(rows[:, 0], dtype=torch.int64)


def _text(n: int) -> tuple[Tensor, Tensor]:
    raw = (_folder() / FILES["gpt"][0]).read_bytes()[: n * CONTEXT + 1]
    numbers = torch.tensor(np.frombuffer(raw, np.uint8).astype(np.int64))
    return numbers[:-1].view(n, CONTEXT), numbers[1:].view(n, CONTEXT)


def _digits(n: int) -> tuple[Tensor, Tensor]:
    table = np.loadtxt(digits_file(), delimiter=",")[:n]
    pixels = torch.tensor(table[:, :-1] / 16, dtype=torch.float32)
    return pixels, torch.tensor(table[:, -1], dtype=torch.int64)


def _news(n: int) -> tuple[Tensor, Tensor]:
    messages = list(_messages())
    Random("news").shuffle(messages)
    groups = sorted({group for group, _ in messages})
    rows = [row for _, row in messages[:n]]
    labels = [groups.index(group) for group, _ in messages[:n]]
    return torch.tensor(rows), torch.tensor(labels)


def _messages() -> Iterator[tuple[str, list[int]]]:
    """Yield the group of each message of the training part, and its hashed words."""
    with tarfile.open(_folder() / FILES["text"][0]) as archive:
        for member in archive:
            parts = member.name.split("/")
            if not (member.isfile() and "train" in parts[0]):
                continue
            file = archive.extractfile(member)
            assert file is not None
            words = islice(file.read().lower().split(), WORDS)
            row = [1 + zlib.crc32(word) % (VOCABULARY - 1) for word in words]
            yield parts[1], row + [0] * (WORDS - len(row))
