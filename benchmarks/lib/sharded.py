"""Models whose steps are timed: in Penstock's loop, in a plain one, and under torch's own DDP."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import penstock
import torch
from penstock.tasks.gangs.gang import Gang
from penstock.tasks.gangs.tree_sum import split
from penstock.tasks.training import loop
from penstock.tasks.training.determinism import configure
from torch import nn
from torch.distributed import FileStore, PrefixStore
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import TensorDataset

BATCH = 128


class Timed(penstock.TorchTrainable):
    """Training data in memory, next to no validation: an epoch is its steps."""

    batch_size = BATCH
    shape: tuple[int, ...] = ()
    steps = 16

    def data(self):
        generator = torch.Generator().manual_seed(1)
        x = torch.randn(BATCH * self.steps, *self.shape, generator=generator)
        y = torch.randint(0, 10, (len(x),), generator=generator)
        return penstock.Data(TensorDataset(x, y), TensorDataset(x[:8], y[:8]))

    def optimizer(self, model):
        return torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def loss(self, model, batch):
        x, y = batch
        return nn.functional.cross_entropy(model(x), y)


class Cnn(Timed):
    shape = (1, 16, 16)

    def model(self):
        return nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1, bias=False),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1, bias=False),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Dropout(0.2),
            nn.Linear(512, 64),
            nn.ReLU(),
            nn.Linear(64, 10),
        )


class Lstm(Timed):
    shape = (16, 32)

    def model(self):
        return Last(nn.LSTM(32, 96, batch_first=True), nn.Linear(96, 10))


class Last(nn.Module):
    """The head on the last of a recurrent body's outputs."""

    def __init__(self, body, head):
        super().__init__()
        self.body, self.head = body, head

    def forward(self, x):
        return self.head(self.body(x)[0][:, -1])


class Transformer(Timed):
    shape = (16, 64)

    def model(self):
        return nn.Sequential(
            nn.TransformerEncoderLayer(64, 4, 128, dropout=0.1, batch_first=True),
            nn.Flatten(),
            nn.Linear(1024, 10),
        )


class Mlp(Timed):
    """Steps well below a millisecond."""

    shape = (64,)
    steps = 64

    def model(self):
        return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 10))


MODELS = {"cnn": Cnn, "lstm": Lstm, "transformer": Transformer, "mlp_small": Mlp}


def seconds(work: Callable[[], Any], clock: Callable[[], float] = time.perf_counter) -> float:
    began = clock()
    work()
    return clock() - began


class Ours:
    """A trial in Penstock's loop; ``epoch`` trains one."""

    def __init__(self, kind: type[Timed], shards: int, gang: Gang | None = None) -> None:
        code = kind({})
        self._run = loop.start(code, code.data(), 0, 0, shards)
        self._run.gang = gang

    def epoch(self) -> None:
        loop.run_epoch(self._run, lambda *_: None)


class Plain:
    """A user's own loop: no keys, no hashes; gradients accumulated over ``parts``."""

    def __init__(self, kind: type[Timed], parts: int = 1) -> None:
        self._parts = parts
        self._code = kind({})
        self._x, self._y = self._code.data().train.tensors
        self._model = self._code.model()
        self._optimizer = self._code.optimizer(self._model)

    def epoch(self) -> None:
        for part in torch.randperm(len(self._x)).split(BATCH):
            self._optimizer.zero_grad()
            for some in part.chunk(self._parts):
                loss = self._code.loss(self._model, (self._x[some], self._y[some]))
                (loss / self._parts).backward()
            self._optimizer.step()


class Ddp:
    """torch's DistributedDataParallel over the same micro-batches, accumulated without syncing."""

    def __init__(self, kind: type[Timed], rank: int, width: int, shards: int) -> None:
        self._code = kind({})
        self._x, self._y = self._code.data().train.tensors
        torch.manual_seed(0)
        with warnings.catch_warnings():
            # Newer versions of torch have another name for this.
            warnings.filterwarnings("ignore", message="`broadcast_buffers`")
            self._model = DistributedDataParallel(
                self._code.model(), broadcast_buffers=False, gradient_as_bucket_view=True
            )
        self._optimizer = self._code.optimizer(self._model)
        parts = split(BATCH, shards)
        self._parts = [parts[shard] for shard in split(shards, width)[rank]]

    def epoch(self) -> None:
        order = torch.randperm(len(self._x), generator=torch.Generator().manual_seed(0))
        for batch in order.split(BATCH):
            self._optimizer.zero_grad()
            for part in self._parts[:-1]:
                with self._model.no_sync():
                    self._backward(batch[part.start : part.stop])
            last = self._parts[-1]
            self._backward(batch[last.start : last.stop])
            self._optimizer.step()

    def _backward(self, part: torch.Tensor) -> None:
        loss = self._code.loss(self._model, (self._x[part], self._y[part]))
        (loss / len(self._parts)).backward()


def beside_ddp(width: int, shards: int, runs: int) -> dict[str, list[tuple[float, float]]]:
    """For each model, (ours, DDP's) seconds an epoch in turns, in ``width`` processes."""
    context = get_context("spawn")
    with TemporaryDirectory() as folder:
        ours, theirs = context.Pipe()
        members = [
            context.Process(
                target=_member, args=(rank, width, shards, runs, Path(folder) / "store", theirs)
            )
            for rank in range(width)
        ]
        for member in members:
            member.start()
        theirs.close()
        found: dict[str, list[tuple[float, float]]] = ours.recv()
        for member in members:
            member.join()
    return found


def _member(rank: int, width: int, shards: int, runs: int, path: Path, pipe: Any) -> None:
    os.environ["OMP_NUM_THREADS"] = "1"
    configure()
    store = FileStore(str(path), width)
    gang = Gang(PrefixStore("gang", store), rank, width, torch.device("cpu"))
    torch.distributed.init_process_group(
        "gloo", store=PrefixStore("ddp", store), rank=rank, world_size=width
    )
    found = {}
    for name, kind in MODELS.items():
        both = Ours(kind, shards, gang), Ddp(kind, rank, width, shards)
        for variant in both:
            variant.epoch()
        found[name] = []
        for run in range(runs):
            spans = {}
            for variant in both if run % 2 else reversed(both):
                torch.distributed.barrier()
                spans[variant] = seconds(variant.epoch)
            found[name].append(tuple(spans[variant] for variant in both))
    torch.distributed.destroy_process_group()
    gang.close()
    if rank == 0:
        pipe.send(found)
