"""Runs gangs without Celery: processes with the trainers' code train small models in stages.

A plan is a list of stages. A stage names the members (the first is rank 0) and the epoch to train.
Each member runs a segment as a trainer does: it takes the state from a member that has it, or
replays. A stage may contain members that have lost their state. It may also fail: one member leaves
in the middle, and the epoch is lost for all. Rank 0 returns the results of the epochs.
"""

from __future__ import annotations

import os
import random
import socket
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from multiprocessing import get_context
from typing import Any

import numpy as np
import penstock
import torch
from penstock.app.extensions import names
from penstock.tasks.process.failure import Lost
from penstock.tasks.process.pipe import Abandoned, Run
from penstock.tasks.trainer.segment import Segments
from penstock.tasks.training.determinism import configure
from penstock.wire.identity import Identity
from penstock.wire.messages import CodeRef, SegmentTask
from torch import nn
from torch.utils.data import Dataset, TensorDataset

SHARDS = 8
SEED, NUMBER = 11, 0


class Small(penstock.TorchTrainable):
    """56 examples in batches of 24; the last one of 8 is too small for 8 shards of two."""

    batch_size = 24
    eval_batch_size = 9
    shape: tuple[int, ...] = ()
    examples = 56, 24

    def data(self):
        generator = torch.Generator().manual_seed(1)
        train, validation = self.examples
        x = torch.randn(train + validation, *self.shape, generator=generator)
        data = TensorDataset(x, (x.flatten(1).mean(1) > 0).long())
        return penstock.Data(TensorDataset(*data[:train]), TensorDataset(*data[train:]))

    def optimizer(self, model):
        kinds = {
            "sgd": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=1e-3),
            "adam": lambda p: torch.optim.Adam(p, lr=0.01),
            "adamw": lambda p: torch.optim.AdamW(p, lr=0.01),
        }
        return kinds[self.params["optimizer"]](model.parameters())

    def schedule(self, optimizer):
        if self.params["optimizer"] == "adam":
            return torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
        return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=6)

    def clip(self, model):
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)

    def loss(self, model, batch):
        x, y = batch
        return nn.functional.cross_entropy(model(x), y)

    def metrics(self, model, batch):
        x, y = batch
        return {"accuracy": (model(x).argmax(1) == y).float().mean()}


class Conv(Small):
    """Convolutions, batch normalisation and dropout."""

    shape = (1, 8, 8)

    def model(self):
        return nn.Sequential(
            nn.Conv2d(1, 6, 3, bias=False),
            nn.BatchNorm2d(6),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Dropout(0.3),
            nn.Linear(54, 10),
            nn.BatchNorm1d(10, momentum=None),
            nn.Linear(10, 2),
        )


class Lstm(Small):
    """An LSTM on a data set that augments its examples with every generator there is."""

    shape = (6, 5)

    def data(self):
        data = super().data()
        return penstock.Data(Noisy(data.train), data.validation)

    def model(self):
        return LstmModel()


class LstmModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(5, 12, num_layers=2, dropout=0.2, batch_first=True)
        self.head = nn.Linear(12, 2)
        self.unused = nn.Linear(3, 3)

    def forward(self, x):
        return self.head(self.lstm(x)[0][:, -1])


class Noisy(Dataset):
    def __init__(self, data):
        self._data = data

    def __len__(self):
        return len(self._data)

    def __getitem__(self, index):
        x, y = self._data[index]
        return x + 0.1 * torch.randn(5) + random.gauss(0, 0.1) + np.float32(np.random.rand()), y


class Block(Small):
    """A transformer block with a constant buffer."""

    shape = (6, 16)

    def model(self):
        return BlockModel()


class BlockModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True)
        self.head = nn.Linear(16, 2)
        self.register_buffer("place", torch.arange(6.0).reshape(6, 1) / 3)

    def forward(self, x):
        return self.head(self.block(x + self.place).mean(1))


class Encoded(Small):
    """A small network on the activations of a frozen convolution."""

    shape = (1, 8, 8)

    def encoder(self):
        made = torch.Generator().manual_seed(2)
        net = nn.Sequential(nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten())
        for each in net.parameters():
            each.data = torch.randn(each.shape, generator=made)
        return net.eval().requires_grad_(requires_grad=False)

    def model(self):
        return nn.Sequential(nn.Linear(216, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 2))


class Paths(Small):
    """The super-net of NAS-Bench-201: each shard of a batch trains a path of its own."""

    shape = (3, 8, 8)

    def model(self):
        return supernet(cells=1)


class LargePaths(Small):
    """The same with three cells, on larger images: three short steps an epoch."""

    shape = (3, 16, 16)

    def model(self):
        return supernet()


class CifarPaths(LargePaths):
    """The same on images of CIFAR's size, in batches of 64: 256 to train on, 64 to evaluate."""

    shape = (3, 32, 32)
    batch_size = 64
    eval_batch_size = 32
    examples = 256, 64


MODELS = {"cnn": Conv, "lstm": Lstm, "transformer": Block, "encoded": Encoded}
SUPERNETS = {"supernet": Paths, "large supernet": LargePaths, "CIFAR's supernet": CifarPaths}
OPTIMIZERS = ("sgd", "adam", "adamw")


@dataclass(frozen=True)
class Stage:
    """The training of ``epoch`` by ``members``, of whom those in ``cold`` have lost the trial.

    ``leaves`` is the (rank, step) at which a member leaves.
    """

    members: tuple[int, ...]
    epoch: int
    leaves: tuple[int, int] | None = None
    cold: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Order:
    """One member's work: its segment, the members, and the step at which it leaves, if any."""

    task: SegmentTask
    model: str
    members: tuple[str, ...]
    leaves: int | None
    cold: bool


class Pool:
    """Processes that carry out plans."""

    def __init__(self, size: int) -> None:
        self._trials = count()
        self._fences = count(1)
        context = get_context("spawn")
        self._pipes, self._processes = [], []
        for _ in range(size):
            ours, theirs = context.Pipe()
            self._processes.append(context.Process(target=_serve, args=(theirs,), daemon=True))
            self._processes[-1].start()
            theirs.close()
            self._pipes.append(ours)
        self._identities = [pipe.recv() for pipe in self._pipes]
        #: Seconds of the epochs of the last plan, as rank 0 reported them.
        self.seconds: list[float] = []

    def carry_out(
        self, model: str, optimizer: str, stages: tuple[Stage, ...]
    ) -> list[tuple[int, str, dict[str, float]]]:
        """(epoch, hash of the state, metrics) of every epoch that was finished, in order."""
        trial = f"plan-{next(self._trials):04d}"
        accepted = {0: ""}
        self.seconds = []
        found = []
        holder = ""
        for stage in stages:
            identities = tuple(self._identities[member] for member in stage.members)
            task = SegmentTask(
                id="d1",
                study="plan",
                trial=trial,
                number=NUMBER,
                contract="torch",
                code=CodeRef(target="", path="", digest=""),
                params={"optimizer": optimizer},
                metric="accuracy",
                seed=SEED,
                first=stage.epoch,
                n=1,
                shards=SHARDS,
                fence=next(self._fences),
                queues=tuple(f"d{member}" for member in stage.members),
                expect=accepted[stage.epoch - 1],
                holder=holder,
                store="memory://plans",
                lease_ms=60_000,
            )
            for rank, member in enumerate(stage.members):
                order = Order(
                    task.model_copy(update={"rank": rank}),
                    model,
                    identities if len(identities) > 1 else (),
                    stage.leaves[1] if stage.leaves and stage.leaves[0] == rank else None,
                    member in stage.cold,
                )
                self._pipes[member].send(order)
            said = [self._pipes[member].recv() for member in stage.members]
            if stage.leaves is not None:
                assert not any(said), "the gang of a member that left has finished its epoch"
                continue
            [epoch] = {each and (each[0], each[1]) for each in said}
            assert epoch is not None, f"a whole gang has lost its epoch: {stage}"
            found.append(said[0][:3])
            self.seconds.append(said[0][3])
            accepted.setdefault(epoch[0], epoch[1])
            holder = identities[0]
        for pipe in self._pipes:
            pipe.send(trial)
        return found

    def close(self) -> None:
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.join()


class _Member:
    """A trainer's pipe whose other end is this benchmark."""

    def __init__(self) -> None:
        self.epochs: list[tuple[int, str, dict[str, float], float]] = []

    def say(self, op: str, **fields: Any) -> None:
        if op == "epoch":
            names = ("epoch", "state_hash", "metrics", "seconds")
            epoch, state_hash, metrics, seconds = (fields[name] for name in names)
            self.epochs.append((epoch, state_hash, metrics, seconds))


class _Leaving(Run):
    """A run that is fenced off at a step."""

    leaves: int | None = None

    def tick(self, epoch: int, step: int, steps: int) -> None:
        if self.leaves == step:
            raise Abandoned


def _serve(pipe: Any) -> None:
    os.environ["OMP_NUM_THREADS"] = "1"
    configure()
    listen = socket.create_server(("127.0.0.1", 0))
    identity = str(Identity("127.0.0.1", listen.getsockname()[1], "word"))
    member = _Member()
    # It only says things to its pipe.
    segments = Segments(member, identity, listen, extensions=names("trainer"))
    pipe.send(identity)
    with suppress(EOFError):
        while True:
            order = pipe.recv()
            if isinstance(order, str):
                segments.release(order)
                continue
            if order.cold:
                segments.release(order.task.trial)
            member.epochs.clear()
            run = _Leaving(order.task, member, order.members)
            run.leaves = order.leaves
            with suppress(Abandoned, Lost):
                segments.run(run, (MODELS | SUPERNETS)[order.model])
            pipe.send(member.epochs[0] if member.epochs else None)


def straight(*widths: int) -> tuple[Stage, ...]:
    """An epoch at each of these widths, by the members that hold the trial first."""
    return tuple(Stage(tuple(range(width)), epoch) for epoch, width in enumerate(widths, 1))


def supernet(**arguments: Any) -> nn.Module:
    """Return a super-net. It is imported here: gangs of other models do without the extension."""
    from penstock import nas

    from .nas_spaces import NasBench201

    return nas.supernet(NasBench201, **arguments)
