"""Gangs without Celery: processes that train small models together, stage by stage.

A plan is a list of stages: who the members are (the first is rank 0), and the epoch to train. Rank
0 hands the trial over; where it has not got it, it replays it. A stage may be told to fail: one
member leaves in the middle, the epoch is lost for all. What the epochs gave comes back by rank 0.
"""

from __future__ import annotations

import os
import random
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from multiprocessing import get_context
from typing import Any

import numpy as np
import penstock
import torch
from penstock.profiling.errors import BackendError
from penstock.tasks import loop
from penstock.tasks.gang import Gang
from penstock.tasks.segment import configure
from penstock.tasks.state import state_hash
from torch import nn
from torch.distributed import PrefixStore, TCPStore
from torch.utils.data import Dataset, TensorDataset

SHARDS = 8
SEED, NUMBER = 11, 0


class Small(penstock.TorchTrainable):
    """56 examples in batches of 24; the last one of 8 is too small for 8 shards of two."""

    batch_size = 24
    eval_batch_size = 9
    shape: tuple[int, ...] = ()

    def data(self):
        generator = torch.Generator().manual_seed(1)
        x = torch.randn(80, *self.shape, generator=generator)
        data = TensorDataset(x, (x.flatten(1).mean(1) > 0).long())
        return penstock.Data(TensorDataset(*data[:56]), TensorDataset(*data[56:]))

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


MODELS = {"cnn": Conv, "lstm": Lstm, "transformer": Block}
OPTIMIZERS = ("sgd", "adam", "adamw")


@dataclass(frozen=True)
class Stage:
    """``epoch`` None only hands the trial over; at ``leaves``, (rank, step), a member goes."""

    members: tuple[int, ...]
    epoch: int | None
    leaves: tuple[int, int] | None = None


@dataclass(frozen=True)
class Job:
    """A trial and its plan. ``id`` names its gangs: they meet at the same store."""

    id: int
    model: str
    optimizer: str
    stages: tuple[Stage, ...]


class Gone(Exception):
    """This member leaves its gang."""


class Pool:
    """Processes that carry out jobs."""

    def __init__(self, size: int) -> None:
        self._ids = count()
        self._store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        context = get_context("spawn")
        self._pipes, self._processes = [], []
        for me in range(size):
            ours, theirs = context.Pipe()
            arguments = (me, theirs, self._store.port)
            self._processes.append(context.Process(target=_serve, args=arguments, daemon=True))
            self._processes[-1].start()
            theirs.close()
            self._pipes.append(ours)

    def carry_out(
        self, model: str, optimizer: str, stages: tuple[Stage, ...]
    ) -> list[tuple[int, str, dict[str, float]]]:
        """(epoch, hash of the state, metrics) of every epoch that was finished, in order."""
        job = Job(next(self._ids), model, optimizer, stages)
        for pipe in self._pipes:
            pipe.send(job)
        found: dict[int, Any] = {}
        for pipe in self._pipes:
            found |= pipe.recv()
        return [found[stage] for stage in sorted(found)]

    def close(self) -> None:
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.join()


def _serve(me: int, pipe: Any, port: int) -> None:
    os.environ["OMP_NUM_THREADS"] = "1"
    configure()
    store = TCPStore("127.0.0.1", port)
    with suppress(EOFError):
        while True:
            job = pipe.recv()
            member = Member(me, store, job)
            for i, stage in enumerate(job.stages):
                if me in stage.members:
                    member.take_part(i, stage)
            pipe.send(member.found)


class Member:
    """One process's part in one job."""

    def __init__(self, me: int, store: Any, job: Job) -> None:
        self._me, self._store, self._job = me, store, job
        self._run: loop.Training | None = None
        self.found: dict[int, Any] = {}

    def take_part(self, i: int, stage: Stage) -> None:
        rank, width = stage.members.index(self._me), len(stage.members)
        run = self._run or self._start()
        self._run = run
        if rank == 0 and stage.epoch is not None:
            run = self._run = self._before(run, stage.epoch)
        gang = None
        if width > 1:
            store = PrefixStore(f"{self._job.id}.{i}", self._store)
            gang = Gang(store, rank, width, run.device, timeout=120.0)
        try:
            if gang is not None:
                gang.join(run)
            if stage.epoch is not None:
                self._train(i, run, stage, rank)
        except (Gone, BackendError):
            if stage.leaves is None:
                raise
            self._run = None
        finally:
            run.gang = None
            if gang is not None:
                gang.close()

    def _train(self, i: int, run: loop.Training, stage: Stage, rank: int) -> None:
        def tick(_epoch: int, step: int, _steps: int) -> None:
            if stage.leaves == (rank, step):
                raise Gone

        result = loop.run_epoch(run, tick)
        assert stage.leaves is None, "the gang of a member that left has finished its epoch"
        if rank == 0:
            self.found[i] = (run.epoch, state_hash(run.state()), result.metrics)

    def _start(self) -> loop.Training:
        code = MODELS[self._job.model]({"optimizer": self._job.optimizer})
        return loop.start(code, code.data(), SEED, NUMBER, SHARDS)

    def _before(self, run: loop.Training, epoch: int) -> loop.Training:
        """The trial before ``epoch``: as it is here, else replayed from its beginning."""
        if run.epoch == epoch - 1:
            return run
        run = self._start()
        while run.epoch < epoch - 1:
            loop.run_epoch(run, lambda *_: None, evaluated=False)
        return run


def straight(*widths: int) -> tuple[Stage, ...]:
    """An epoch at each of these widths; those who hold the trial go first."""
    return tuple(Stage(tuple(range(width)), epoch) for epoch, width in enumerate(widths, 1))
