"""Ten workloads for system tuning, each with a similar one: its twin, of other code.

Three are the paper's (LeNet-5 on MNIST, a CNN and an LSTM on 20 Newsgroups), cut to two cores.
There are five kinds of nets (plain and residual convolutions, recurrent, attention, one-dimensional
convolutions), two data sets that Python makes slow to read, text and tables. A twin has another
width or another data set; its code is another, so nothing that is known by code is known of it.

This list was committed before the code that it judges. In a third of what is judged, sizes are
drawn by the hash of the commit that froze that code (``judged``).
"""

from __future__ import annotations

import gzip
import re
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from random import Random
from typing import Any

import numpy as np
import penstock
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, TensorDataset

from testkit.data import data_folder
from testkit.results import ROOT

from ..lib import families

Params = Mapping[str, Any]
#: The code that is judged; the last commit that touched it is what draws.
JUDGED_CODE = "extensions/system_tuning"
#: Sizes that are drawn: factors of a net's width, and batches.
SCALES, BATCHES = (0.5, 0.75, 1.25, 1.5, 2.0), (16, 32, 64, 128)


@cache
def cifar10() -> families.Tensors:
    """CIFAR-10's first batch, between 0 and 1."""
    content = gzip.decompress((data_folder("cifar10") / "data_batch_1.bin.gz").read_bytes())
    rows = torch.tensor(np.frombuffer(content, np.uint8).reshape(-1, 1 + 3 * 32 * 32))
    return rows[:, 1:].reshape(-1, 3, 32, 32) / 255, rows[:, 0].long()


def gray() -> families.Tensors:
    """CIFAR-10 as MNIST's size: one channel, 28 x 28 pixels."""
    pixels, labels = cifar10()
    return pixels.mean(1, keepdim=True)[:, :, 2:30, 2:30], labels


@cache
def characters() -> families.Tensors:
    """WikiText-2's valid split as rows of 65 characters, by number."""
    text = (data_folder("wikitext2") / "valid.txt").read_bytes()
    numbers = torch.tensor(np.frombuffer(text, np.uint8) % 128).long()
    rows = numbers[: len(numbers) // 65 * 65].reshape(-1, 65)
    return rows[:, :-1], rows[:, 1:]


@cache
def table(columns: int, classes: int) -> families.Tensors:
    """A table that scikit-learn makes."""
    from sklearn.datasets import make_classification

    rows, labels = make_classification(
        8000, columns, n_informative=columns // 3, n_classes=classes, random_state=0
    )
    return torch.tensor(rows).float(), torch.tensor(labels).long()


def covered() -> families.Tensors:
    """A table as large as that of forest covers."""
    return table(54, 7)


def clicks() -> families.Tensors:
    """A table of fewer columns and two classes."""
    return table(39, 2)


mnist, news20, synthetic = (
    cache(each) for each in (families.mnist, families.news20, families.synthetic)
)


@cache
def texts(newest: bool) -> tuple[tuple[str, ...], Tensor]:
    """Documents of 20 Newsgroups that are trained on, and their groups: old ones or new ones."""
    import tarfile

    found: dict[str, list[str]] = {}
    with tarfile.open(data_folder("news20") / "20news-bydate.tar.gz") as archive:
        for member in archive:
            parts = member.name.split("/")
            if member.isfile() and ("test" if newest else "train") in parts[0]:
                group = found.setdefault(parts[1], [])
                if len(group) < 100:
                    group.append(archive.extractfile(member).read().decode("latin-1"))
    groups = [number for number, group in enumerate(found.values()) for _ in group]
    return tuple(text for group in found.values() for text in group), torch.tensor(groups)


class Tuned(penstock.TorchTrainable):
    """The common part: ``examples`` of a shuffled data set, a tenth of them to validate."""

    #: Factor of the net's width; ``scale`` multiplies it.
    width = 1.0
    tensors = staticmethod(mnist)

    def wide(self, size: int) -> int:
        """A layer's size, in steps of 4."""
        return max(4, round(size * self.width * self.params["scale"] / 4) * 4)

    def split(self, size: int) -> tuple[Tensor, Tensor]:
        """The numbers of the examples that are trained on, and of those that judge."""
        chance = torch.Generator().manual_seed(0)
        taken = torch.randperm(size, generator=chance)[: self.params["examples"]]
        return taken[: len(taken) * 9 // 10], taken[len(taken) * 9 // 10 :]

    def data(self):
        inputs, targets = self.tensors()
        train, judging = self.split(len(inputs))
        return penstock.Data(
            train=TensorDataset(inputs[train], targets[train]),
            validation=TensorDataset(inputs[judging], targets[judging]),
        )

    def optimizer(self, model):
        return torch.optim.SGD(model.parameters(), lr=self.params["lr"], momentum=0.9)

    def loss(self, model, batch):
        inputs, targets = batch
        return nn.functional.cross_entropy(model(inputs), targets)

    def metrics(self, model, batch):
        inputs, targets = batch
        scores = model(inputs)
        return {
            "loss": nn.functional.cross_entropy(scores, targets),
            "accuracy": (scores.argmax(1) == targets).float().mean(),
        }


class LeNet(Tuned):
    """LeNet-5 on MNIST."""

    def model(self):
        first, second, dense = self.wide(8), self.wide(16), self.wide(120)
        return nn.Sequential(
            *(nn.Conv2d(1, first, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(first, second, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
            *(nn.Linear(25 * second, dense), nn.ReLU(), nn.Dropout(self.params["dropout"])),
            nn.Linear(dense, 10),
        )


class GrayLeNet(LeNet):
    """LeNet-5 on CIFAR-10 without colours."""

    tensors = staticmethod(gray)


class TextCNN(Tuned):
    """A convolution over embedded words of 20 Newsgroups."""

    tensors = staticmethod(news20)

    def model(self):
        filters = self.wide(128)
        return nn.Sequential(
            *(nn.Embedding(families.WORDS, 100), families.Turned(), nn.Conv1d(100, filters, 5)),
            *(nn.ReLU(), nn.AdaptiveMaxPool1d(1), nn.Flatten(), nn.Linear(filters, 128)),
            *(nn.Dropout(self.params["dropout"]), nn.ReLU(), nn.Linear(128, 20)),
        )

    def optimizer(self, model):
        return torch.optim.Adagrad(model.parameters(), lr=self.params["lr"])


class NarrowTextCNN(TextCNN):
    """The same with three quarters of the filters."""

    width = 0.75


class TextLSTM(TextCNN):
    """An LSTM's last state over embedded words of 20 Newsgroups."""

    def model(self):
        hidden = self.wide(64)
        return nn.Sequential(
            *(nn.Embedding(families.WORDS, 100), families.Last(100, hidden)),
            *(nn.Linear(hidden, 128), nn.Dropout(self.params["dropout"])),
            *(nn.ReLU(), nn.Linear(128, 20)),
        )


class WideTextLSTM(TextLSTM):
    """The same with half as many states again."""

    width = 1.5


class Convolutions(Tuned):
    """A small convolution net on CIFAR-10."""

    tensors = staticmethod(cifar10)

    def model(self):
        first, second = self.wide(32), self.wide(64)
        return nn.Sequential(
            *(nn.Conv2d(3, first, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(first, second, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(second, second, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1)),
            *(nn.Flatten(), nn.Dropout(self.params["dropout"]), nn.Linear(second, 10)),
        )


class NarrowConvolutions(Convolutions):
    """The same with half of the channels."""

    width = 0.5


class Block(nn.Module):
    """Two convolutions with norms, and what went in added."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *(nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels)),
            *(nn.ReLU(), nn.Conv2d(channels, channels, 3, padding=1, bias=False)),
            nn.BatchNorm2d(channels),
        )

    def forward(self, inputs: Tensor) -> Tensor:
        return nn.functional.relu(inputs + self.body(inputs))


class Residual(Tuned):
    """A residual net with batch norms on CIFAR-10."""

    tensors = staticmethod(cifar10)

    def model(self):
        first, second = self.wide(16), self.wide(32)
        return nn.Sequential(
            *(nn.Conv2d(3, first, 3, stride=2, padding=1), Block(first), Block(first)),
            *(nn.Conv2d(first, second, 3, stride=2, padding=1), Block(second), Block(second)),
            *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(self.params["dropout"])),
            nn.Linear(second, 10),
        )


class WideResidual(Residual):
    """The same with half as many channels again."""

    width = 1.5


class Attention(nn.Module):
    """A small causal transformer over characters."""

    def __init__(self, size: int, dropout: float) -> None:
        super().__init__()
        self.letters, self.places = nn.Embedding(128, size), nn.Embedding(64, size)
        layer = nn.TransformerEncoderLayer(
            size, 4, 4 * size, dropout, "gelu", batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.scores = nn.Linear(size, 128)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(64))

    def forward(self, letters: Tensor) -> Tensor:
        inside = self.letters(letters) + self.places.weight
        return self.scores(self.layers(inside, self.mask, is_causal=True)).transpose(1, 2)


class Characters(Tuned):
    """A transformer that foretells characters of WikiText-2."""

    tensors = staticmethod(characters)

    def model(self):
        return Attention(self.wide(64), self.params["dropout"])

    def optimizer(self, model):
        return torch.optim.AdamW(model.parameters(), lr=self.params["lr"] / 10)


class WideCharacters(Characters):
    """The same with half as many features again."""

    width = 1.5


class Series(Tuned):
    """One-dimensional convolutions on synthetic series; its "accuracy" is 1 / (1 + loss)."""

    tensors = staticmethod(synthetic)

    def model(self):
        size = self.wide(64)
        return nn.Sequential(
            *(nn.Conv1d(40, size, 8), nn.ReLU(), nn.Conv1d(size, size, 6), nn.ReLU()),
            *(nn.Conv1d(size, size, 4), nn.ReLU(), nn.Flatten()),
            *(nn.Dropout(self.params["dropout"]), nn.Linear(57 * size, 128), nn.ReLU()),
            nn.Linear(128, 1),
        )

    def optimizer(self, model):
        return torch.optim.Adam(model.parameters(), lr=self.params["lr"] / 10)

    def loss(self, model, batch):
        inputs, targets = batch
        return nn.functional.mse_loss(model(inputs), targets)

    def metrics(self, model, batch):
        loss = self.loss(model, batch)
        return {"loss": loss, "accuracy": 1 / (1 + loss)}


class NarrowSeries(Series):
    """The same with half of the channels."""

    width = 0.5


class Table(Tuned):
    """A dense net on a table of 54 columns and seven classes."""

    tensors = staticmethod(covered)

    def model(self):
        columns = self.tensors()[0].shape[1]
        size = self.wide(256)
        return nn.Sequential(
            *(nn.Linear(columns, size), nn.ReLU(), nn.Dropout(self.params["dropout"])),
            *(nn.Linear(size, size), nn.ReLU(), nn.Linear(size, 7)),
        )


class OtherTable(Table):
    """The same on a table of 39 columns and two classes."""

    tensors = staticmethod(clicks)


class Distorted(Dataset):
    """Images that Python shifts, mirrors and dims one by one."""

    def __init__(self, pixels: Tensor, labels: Tensor, numbers: Tensor) -> None:
        self._pixels, self._labels = pixels[numbers].numpy(), labels[numbers]

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, number: int) -> tuple[Tensor, Tensor]:
        image = self._pixels[number]
        down, right = np.random.randint(-3, 4, 2)
        image = np.roll(image, (down, right), (1, 2))
        if np.random.random() < 0.5:
            image = image[:, :, ::-1]
        rows = [row * np.float32(0.8 + 0.4 * np.random.random()) for row in image.reshape(-1, 8)]
        return torch.from_numpy(np.stack(rows).reshape(image.shape)), self._labels[number]


class DistortedConvolutions(Convolutions):
    """The small convolution net on images that are distorted as they are read."""

    width = 0.5

    def data(self):
        pixels, labels = self.tensors()
        train, judging = self.split(len(labels))
        return penstock.Data(
            train=Distorted(pixels, labels, train),
            validation=TensorDataset(pixels[judging], labels[judging]),
        )


class WideDistortedConvolutions(DistortedConvolutions):
    """A wider net on the same images."""

    width = 0.75


class Words(Dataset):
    """Documents that Python cuts into words and counts one by one."""

    def __init__(self, documents: tuple[str, ...], groups: Tensor, numbers: Tensor) -> None:
        self._documents, self._groups = [documents[n] for n in numbers.tolist()], groups[numbers]

    def __len__(self) -> int:
        return len(self._documents)

    def __getitem__(self, number: int) -> tuple[Tensor, Tensor]:
        counts = np.zeros(4096, np.float32)
        for word in re.findall(r"[a-z]+", self._documents[number].lower()):
            counts[hash_of(word)] += 1
        return torch.from_numpy(np.log1p(counts)), self._groups[number]


def hash_of(word: str) -> int:
    """A word's place: the same in every process."""
    place = 0
    for letter in word:
        place = (31 * place + ord(letter)) % 4096
    return place


class Bags(Tuned):
    """A dense net on counts of words, which Python makes as they are read."""

    newest = False

    def data(self):
        documents, groups = texts(self.newest)
        train, judging = self.split(len(groups))
        return penstock.Data(
            train=Words(documents, groups, train), validation=Words(documents, groups, judging)
        )

    def model(self):
        size = self.wide(256)
        return nn.Sequential(
            *(nn.Linear(4096, size), nn.ReLU(), nn.Dropout(self.params["dropout"])),
            nn.Linear(size, 20),
        )


class NewestBags(Bags):
    """The same on other documents."""

    newest = True


@dataclass(frozen=True)
class Workload:
    """A workload, its twin, and the devices on which both are tuned."""

    code: type[Tuned]
    twin: type[Tuned]
    #: The difference of the twin.
    other: str
    examples: int
    batch: int = 64
    #: Two trials at a time; one trial on both cores where a knob needs a second core.
    devices: str = "cpu:2x1"
    #: The factor of the net's width.
    scale: float = 1.0
    drawn: bool = False

    def space(self) -> dict[str, Any]:
        """The space of the study: two hyperparameters, and the sizes."""
        return {
            "lr": penstock.Float(1e-3, 1e-1, log=True),
            "dropout": penstock.Float(0, 0.5),
            "batch_size": [self.batch],
            "examples": [self.examples],
            "scale": [self.scale],
        }

    def params(self) -> dict[str, Any]:
        """A point of the space."""
        fixed = {"batch_size": self.batch, "examples": self.examples, "scale": self.scale}
        return fixed | {"lr": 0.01, "dropout": 0.1}


WIDTH, DATA = "another width", "another data set"
BOTH_CORES = "cpu:1x2"
#: The list. Three are PipeTune's.
WORKLOADS = {
    "lenet_mnist": Workload(LeNet, GrayLeNet, DATA, 2000),
    "cnn_news20": Workload(TextCNN, NarrowTextCNN, WIDTH, 600),
    "lstm_news20": Workload(TextLSTM, WideTextLSTM, WIDTH, 600),
    "convolutions_cifar10": Workload(Convolutions, NarrowConvolutions, WIDTH, 600, 32),
    "residual_cifar10": Workload(Residual, WideResidual, WIDTH, 600, 32),
    "attention_wikitext2": Workload(Characters, WideCharacters, WIDTH, 250, 16, BOTH_CORES),
    "series": Workload(Series, NarrowSeries, WIDTH, 1000),
    "table": Workload(Table, OtherTable, DATA, 6000, devices=BOTH_CORES),
    "distorted_cifar10": Workload(
        DistortedConvolutions, WideDistortedConvolutions, WIDTH, 500, 32, BOTH_CORES
    ),
    "words_news20": Workload(Bags, NewestBags, DATA, 600, 32, BOTH_CORES),
}
PAPER = ("lenet_mnist", "cnn_news20", "lstm_news20")
#: These need no files.
QUICK = ("series", "table")


def frozen_at() -> str:
    """The last commit that touched the code that is judged; empty outside of git."""
    command = ("git", "-C", str(ROOT), "log", "-1", "--format=%H", "--", JUDGED_CODE)
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def judged(commit: str) -> dict[str, Workload]:
    """The list, with drawn sizes in a third of it. As listed where ``commit`` is empty.

    >>> sum(each.drawn for each in judged("0123").values())
    3
    """
    found = dict(WORKLOADS)
    if commit:
        chance = Random(f"pipetune {commit}")
        for name in sorted(chance.sample(sorted(WORKLOADS), len(WORKLOADS) // 3)):
            scale, batch = chance.choice(SCALES), chance.choice(BATCHES)
            found[name] = replace(found[name], scale=scale, batch=batch, drawn=True)
    return found


def absent(code: Callable[..., Tuned], workload: Workload) -> str:
    """Say why a workload cannot be measured here; empty where it can."""
    try:
        code(workload.params()).data()
    except (OSError, penstock.UsageError) as error:
        return str(error)
    return ""
