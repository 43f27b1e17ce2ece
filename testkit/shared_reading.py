"""Training code on digits that prepares its examples at a cost, and a trainer that trains it.

Trials of one class share what their class prepares. ``apart`` has as many classes, which are alike
and share nothing: each trial prepares for itself, to the same bits.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import penstock
import psutil
import torch
from penstock.app import extensions
from penstock.tasks.contracts.code import reference
from penstock.tasks.trainer import variables as names
from penstock.wire.messages import CodeRef, SegmentTask
from torch import nn
from torch.utils.data import Dataset, TensorDataset

from . import digits as _digits

TRAINED = 1297


def digits() -> tuple[torch.Tensor, torch.Tensor]:
    """Digits as images, and their labels."""
    pixels, labels = _digits.digits()
    return pixels.reshape(-1, 1, 8, 8), labels


class Shifted(Dataset):
    """Digits, each shifted, scaled and with noise, by Python and NumPy."""

    def __init__(self, pixels, labels):
        self._pixels, self._labels = pixels.numpy(), labels.tolist()

    def __len__(self):
        return len(self._labels)

    def __getitem__(self, i):
        down, right = np.random.randint(-1, 2, 2)
        shifted = np.roll(self._pixels[i], (down, right), (1, 2)) * np.random.uniform(0.8, 1.2)
        noisy = shifted + np.random.normal(0, 0.05, shifted.shape)
        return torch.from_numpy(noisy.astype(np.float32)), self._labels[i]


class Stream(penstock.TorchTrainable):
    """A network of two layers on augmented digits."""

    batch_size = 64

    def data(self):
        pixels, labels = digits()
        held_out = TensorDataset(pixels[TRAINED:], labels[TRAINED:])
        return penstock.Data(Shifted(pixels[:TRAINED], labels[:TRAINED]), held_out)

    def model(self):
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))

    def optimizer(self, model):
        return torch.optim.AdamW(model.parameters(), lr=self.params["lr"])

    def loss(self, model, batch):
        x, y = batch
        return nn.functional.cross_entropy(model(x), y)

    def metrics(self, model, batch):
        x, y = batch
        return {"accuracy": (model(x).argmax(1) == y).float().mean()}


class Averaged(Shifted):
    """The mean of several such shifts: reading is most of a step, as where images are decoded."""

    def __init__(self, pixels, labels, shifts):
        super().__init__(pixels, labels)
        self._shifts = shifts

    def __getitem__(self, i):
        made = [super(Averaged, self).__getitem__(i)[0] for _ in range(self._shifts)]
        return torch.stack(made).mean(0), self._labels[i]


class Read(Stream):
    """The same network on these."""

    shifts = 12

    def data(self):
        pixels, labels = digits()
        held_out = TensorDataset(pixels[TRAINED:], labels[TRAINED:])
        train = Averaged(pixels[:TRAINED], labels[:TRAINED], self.shifts)
        return penstock.Data(train, held_out)


class ReadThrice(Read):
    """A fourth of the work for each example."""

    shifts = 3


class ReadSingly(Read):
    """A twelfth of it."""

    shifts = 1


class Plain(Shifted):
    """Digits as they are, one by one: reading takes no longer than handing over."""

    def __getitem__(self, i):
        return torch.from_numpy(self._pixels[i]), self._labels[i]


class ReadPlain(Stream):
    """The same network on these."""

    def data(self):
        pixels, labels = digits()
        held_out = TensorDataset(pixels[TRAINED:], labels[TRAINED:])
        return penstock.Data(Plain(pixels[:TRAINED], labels[:TRAINED]), held_out)


class Apart:
    """``data()`` reads what differs in each trial: each reads for itself, to the same bits."""

    def data(self):
        assert self.params["lr"]
        return super().data()


class ReadThriceApart(Apart, ReadThrice):
    """Each trial reads for itself."""


class ReadSinglyApart(Apart, ReadSingly):
    """Each trial reads for itself."""


class ReadPlainApart(Apart, ReadPlain):
    """Each trial reads for itself."""


class Encoded(Stream):
    """The same on the activations of frozen convolutions."""

    def data(self):
        pixels, labels = digits()
        train, held_out = (
            TensorDataset(pixels[s], labels[s]) for s in (slice(TRAINED), slice(TRAINED, None))
        )
        return penstock.Data(train, held_out)

    def frozen(self):
        """The same frozen network each time."""
        made = torch.Generator().manual_seed(1)
        net = nn.Sequential(
            *(
                nn.Conv2d(1, 48, 3, padding=1),
                nn.ReLU(),
                nn.Conv2d(48, 48, 3, padding=1),
                nn.ReLU(),
            ),
            *(nn.Conv2d(48, 48, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten()),
        )
        for each in net.parameters():
            each.data = torch.randn(each.shape, generator=made) / max(1, each[0].numel()) ** 0.5
        return net.eval().requires_grad_(requires_grad=False)

    def encoder(self):
        return self.frozen()

    def model(self):
        return nn.Sequential(nn.Linear(192, 64), nn.ReLU(), nn.Linear(64, 10))


class InLoss(Encoded):
    """The frozen network as a part of each step, as without an encoder."""

    encoder = penstock.TorchTrainable.encoder

    def model(self):
        return nn.Sequential(self.frozen(), *super().model())

    def optimizer(self, model):
        trained = [each for each in model.parameters() if each.requires_grad]
        return torch.optim.AdamW(trained, lr=self.params["lr"])

    def loss(self, model, batch):
        model[0].eval()
        return super().loss(model, batch)


def make_apart(kind: type, count: int) -> None:
    """Add ``count`` classes like ``kind`` to its module, under names that a trainer can import."""
    for i in range(count):
        name = f"{kind.__name__}{i}"
        fields = {"__module__": kind.__module__, "__qualname__": name}
        setattr(sys.modules[kind.__module__], name, type(name, (kind,), fields))


def apart(kind: type, i: int) -> type:
    """The class of trial ``i`` that is like ``kind`` and shares nothing (``make_apart``)."""
    made: type = getattr(sys.modules[kind.__module__], f"{kind.__name__}{i}")
    return made


make_apart(Stream, 8)
make_apart(Read, 8)
make_apart(Encoded, 8)


class Trainer:
    """A trainer of one core with ``seats`` seats, started as a program."""

    def __init__(self, folder: Path, seats: int, kept: Path | None = None) -> None:
        """Trainers with one folder ``kept`` share batches."""
        from penstock.extensions.lanes.worker import share, variables

        ours, theirs = socket.socketpair()
        listening = socket.create_server(("127.0.0.1", 0))
        turns = folder / "turns"
        page = share(turns, seats)
        with theirs, listening, (folder / "log").open("ab") as log:
            told = {
                **variables(),
                names.FD: str(theirs.fileno()),
                names.LISTEN: str(listening.fileno()),
                names.IDENTITY: f"127.0.0.1:{listening.getsockname()[1]}:word",
                names.EXTENSIONS: ",".join(extensions.names("trainer")),
                names.SERVING: f"lanes:{page.told}",
                names.KEPT: str(kept or folder / "kept"),
                **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1"),
            }
            self._process = subprocess.Popen(
                [sys.executable, "-m", "penstock.tasks.trainer"],
                env=dict(os.environ) | told,
                pass_fds=[theirs.fileno(), listening.fileno()],
                stdout=log,
                stderr=log,
            )
        self._socket, self._lines = ours, ours.makefile("rb")
        self._hear()
        self.train([task(Stream, 99, 1)])  # it loads what any trial needs

    def _hear(self) -> dict[str, Any]:
        line = self._lines.readline()
        if not line:
            raise RuntimeError("the trainer has ended")
        found: dict[str, Any] = json.loads(line)
        if found["op"] in ("failed", "refused", "stopped", "broken"):
            raise RuntimeError(str(found))
        return found

    def train(
        self, tasks: Sequence[SegmentTask]
    ) -> tuple[dict[str, float], dict[tuple[int, int], str]]:
        """The seconds until all have ended, the trainer's of a core, and the hash of each epoch."""
        began, used = time.perf_counter(), self._used()
        for each in tasks:
            message = {
                "op": "run",
                "members": [],
                "queued": False,
                "task": each.model_dump(mode="json"),
            }
            self._socket.sendall(json.dumps(message).encode() + b"\n")
        left, found = {each.trial for each in tasks}, {}
        while left:
            heard = self._hear()
            if heard["op"] == "epoch":
                found[int(heard["trial"][-4:]), heard["epoch"]] = heard["state_hash"]
                if heard["closes"]:
                    left.discard(heard["trial"])
        seconds = {"wall": time.perf_counter() - began, "cpu": self._used() - used}
        return seconds, found

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    def _used(self) -> float:
        """Seconds of a core that the process has used."""
        times = psutil.Process(self.pid).cpu_times()
        return times.user + times.system

    def close(self) -> None:
        self._lines.close()
        self._socket.close()
        self._process.wait()


@contextmanager
def of_one_node(count: int) -> Iterator[list[Trainer]]:
    """Yield ``count`` trainers of a seat each, which share batches."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        kept = Path(folder) / "kept"
        stack.callback(_clear, kept)
        made = []
        for i in range(count):
            own = Path(folder) / str(i)
            own.mkdir()
            made.append(Trainer(own, 1, kept))
            stack.callback(made[-1].close)
        yield made


def _clear(kept: Path) -> None:
    from penstock.extensions.sharing.node import clear

    clear(kept)


@contextmanager
def started(seats: int) -> Iterator[Trainer]:
    """Yield a trainer with ``seats`` seats, in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(Path(folder), seats)
        try:
            yield trainer
        finally:
            trainer.close()
            _clear(Path(folder) / "kept")


def task(
    code: type,
    number: int,
    epochs: int,
    *,
    fuse: bool = False,
    chosen: Mapping[str, Any] | None = None,
) -> SegmentTask:
    """All epochs of a trial, which has its own learning rate and shares its random numbers.

    ``chosen``: its other hyperparameters.
    """
    target, path, digest = reference(code)
    return SegmentTask.model_validate(
        {
            "id": "d1",
            "study": "s",
            "trial": f"s-{number:04}",
            "number": number,
            "replicate": 0,
            "contract": "torch",
            "code": CodeRef(target=target, path=path, digest=digest),
            "params": {"lr": 1e-3 / (1 + number % 8), **(chosen or {})},
            "metric": "accuracy",
            "seed": 7,
            "first": 1,
            "n": epochs,
            "fence": number + 1,
            "queues": ["cpu.s0"],
            "store": "memory://checkpoints",
            "lease_ms": 5000,
            "ext": {"fusion": {}} if fuse else {},
        }
    )
