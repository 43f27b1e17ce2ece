"""Workload families for profiles: architecture by batch, trained for real, a window at a time."""

from __future__ import annotations

import re
import sys
import tarfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from torch import nn

from testkit.data import data_folder

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
import mnist_lenet

Tensors = tuple[torch.Tensor, torch.Tensor]

#: Of 20 Newsgroups: documents, known words and words of a document that are used.
DOCUMENTS, WORDS, LENGTH = 2000, 5000, 100


def digits() -> Tensors:
    from sklearn.datasets import load_digits

    found = load_digits()
    pixels = torch.tensor(found.data / 16, dtype=torch.float32)
    return pixels, torch.tensor(found.target)


def mnist() -> Tensors:
    pixels = torch.tensor(mnist_lenet.read("train-images-idx3-ubyte")[:6000]).unsqueeze(1) / 255
    return pixels, torch.tensor(mnist_lenet.read("train-labels-idx1-ubyte")[:6000]).long()


def news20() -> Tensors:
    """Word numbers of the first training documents of every group, taken in turn."""
    path = data_folder("news20") / "20news-bydate.tar.gz"
    texts: dict[str, list[str]] = {}
    with tarfile.open(path) as archive:
        for member in archive:
            parts = Path(member.name).parts
            if not member.isfile() or "train" not in parts[0]:
                continue
            group = texts.setdefault(parts[1], [])
            if len(group) < DOCUMENTS // 20:
                group.append(archive.extractfile(member).read().decode("latin-1").lower())
    words = [re.findall(r"[a-z]+", text) for group in texts.values() for text in group]
    known = Counter(word for text in words for word in text).most_common(WORDS - 1)
    numbers = {word: number for number, (word, _) in enumerate(known, start=1)}
    rows = np.zeros((len(words), LENGTH), dtype=np.int64)
    for row, text in zip(rows, words, strict=True):
        found = [numbers[word] for word in text if word in numbers][:LENGTH]
        row[: len(found)] = found
    labels = [label for label, group in enumerate(texts.values()) for _ in group]
    return torch.tensor(rows), torch.tensor(labels)


def synthetic() -> Tensors:
    """Synthetic (40, 72) series with a value each: the paper's data is no longer public."""
    chance = torch.Generator().manual_seed(0)
    series = torch.randn(2000, 40, 72, generator=chance)
    return series, series[:, :4].mean(dim=(1, 2), keepdim=False).unsqueeze(1)


class Last(nn.Module):
    """A recurrent layer's output at the last word."""

    def __init__(self, inside: int, hidden: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(inside, hidden, batch_first=True)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return self.lstm(rows)[0][:, -1]


class Turned(nn.Module):
    """Transposes (batch, words, features) to the order that convolutions need."""

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return rows.transpose(1, 2)


def mlp(dropout: float) -> nn.Module:
    return nn.Sequential(
        *(nn.Linear(64, 256), nn.ReLU(), nn.Dropout(dropout)),
        *(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10)),
    )


def lenet(dropout: float) -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Linear(400, 120), nn.ReLU(), nn.Dropout(dropout), nn.Linear(120, 10)),
    )


def text_cnn(dropout: float) -> nn.Module:
    return nn.Sequential(
        *(nn.Embedding(WORDS, 50), Turned(), nn.Conv1d(50, 128, 5), nn.ReLU()),
        *(nn.AdaptiveMaxPool1d(1), nn.Flatten(), nn.Linear(128, 128)),
        *(nn.Dropout(dropout), nn.ReLU(), nn.Linear(128, 20)),
    )


def text_lstm(dropout: float) -> nn.Module:
    return nn.Sequential(
        *(nn.Embedding(WORDS, 50), Last(50, 64), nn.Linear(64, 128)),
        *(nn.Dropout(dropout), nn.ReLU(), nn.Linear(128, 20)),
    )


def regressor(dropout: float) -> nn.Module:
    return nn.Sequential(
        *(nn.Conv1d(40, 64, 8), nn.ReLU(), nn.Conv1d(64, 64, 6), nn.ReLU()),
        *(nn.Conv1d(64, 64, 4), nn.ReLU(), nn.Flatten(), nn.Dropout(dropout)),
        *(nn.LazyLinear(128), nn.ReLU(), nn.Linear(128, 1)),
    )


ARCHITECTURES: dict[str, tuple[Callable[[], Tensors], Callable[[float], nn.Module]]] = {
    "mlp digits": (digits, mlp),
    "lenet mnist": (mnist, lenet),
    "conv1d synthetic": (synthetic, regressor),
    "cnn news20": (news20, text_cnn),
    "lstm news20": (news20, text_lstm),
}
BATCHES = (32, 256)


class Family:
    """One architecture at one batch size, trained without end: two trials in turn."""

    def __init__(self, name: str, batch: int, tensors: Tensors) -> None:
        self.architecture, self.batch = name, batch
        self.name = f"{name} {batch}"
        self._inputs, self._targets = tensors
        self._loss = nn.MSELoss() if self._targets.is_floating_point() else nn.CrossEntropyLoss()
        torch.manual_seed(batch)
        models = [ARCHITECTURES[name][1](dropout) for dropout in (0.1, 0.4)]
        self._trials = []
        for model, rate in zip(models, (1e-3, 1e-2), strict=True):
            model(self._inputs[:2])  # lazy layers get their shapes
            self._trials.append((model, torch.optim.SGD(model.parameters(), rate, momentum=0.9)))
        self._batches = [self._loader(), self._loader()]

    def _loader(self) -> Iterator[list[torch.Tensor]]:
        data = torch.utils.data.TensorDataset(self._inputs, self._targets)
        while True:
            yield from torch.utils.data.DataLoader(data, self.batch, shuffle=True, drop_last=True)

    def step(self, trial: int) -> float:
        """One step of a trial; the seconds that it waited for its batch."""
        began = time.perf_counter()
        inputs, targets = next(self._batches[trial])
        waited = time.perf_counter() - began
        model, optimizer = self._trials[trial]
        optimizer.zero_grad(set_to_none=True)
        self._loss(model(inputs), targets).backward()
        optimizer.step()
        return waited


def families(quick: bool) -> list[Family]:
    """All families whose data is here; prints those that are left out."""
    chosen = list(ARCHITECTURES)[:3] if quick else list(ARCHITECTURES)
    data: dict[Callable[[], Tensors], Tensors] = {}
    made = []
    for name in chosen:
        source = ARCHITECTURES[name][0]
        file = {mnist: "mnist/train-images-idx3-ubyte.gz", news20: "news20/20news-bydate.tar.gz"}
        if source in file and not data_folder(file[source]).exists():
            print(f"{name} is left out: {file[source]} is not in PENSTOCK_DATA")
            continue
        tensors = data[source] if source in data else data.setdefault(source, source())
        made += [Family(name, batch, tensors) for batch in BATCHES]
    return made
