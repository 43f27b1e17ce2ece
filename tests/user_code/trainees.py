"""Training code for the tests of the trainer: small, exact, and broken in every way a user can."""

from __future__ import annotations

import itertools
import logging
import multiprocessing
import os
import random
import sys
import threading
import time
from pathlib import Path

import numpy
import torch
from penstock.tasks.contracts.contract import Data, TorchTrainable
from torch import nn
from torch.utils.data import Dataset, Subset, TensorDataset


def points(n: int = 96) -> TensorDataset:
    """Points in four dimensions, labelled by the sign of a fixed direction."""
    x = torch.randn(n, 4, generator=torch.Generator().manual_seed(1))
    return TensorDataset(x, (x.sum(1) > 0).long())


class Small(TorchTrainable):
    """An MLP with dropout and batch normalisation, under SGD or Adam with a schedule."""

    batch_size = 20  # 80 training points: the last batch is whole; 60 of parameters make it not

    def data(self) -> Data:
        data = points()
        return Data(
            Subset(data, range(80)), Subset(data, range(80, 90)), Subset(data, range(90, 96))
        )

    def model(self) -> nn.Module:
        width = self.params.get("width", 8)
        return nn.Sequential(
            nn.Linear(4, width),
            nn.BatchNorm1d(width),
            nn.ReLU(),
            nn.Dropout(0.3),
            nn.Linear(width, 2),
        )

    def optimizer(self, model):
        lr = self.params.get("lr", 0.05)
        if self.params.get("optimizer") == "adam":
            return torch.optim.Adam(model.parameters(), lr=lr)
        return torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)

    def schedule(self, optimizer):
        match self.params.get("schedule"):
            case "steps":
                return torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[2, 3], gamma=0.5)
            case "plateau":
                return torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
        return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=6)

    def loss(self, model, batch):
        x, y = batch
        return nn.functional.cross_entropy(model(x), y)

    def metrics(self, model, batch):
        x, y = batch
        return {"accuracy": (model(x).argmax(1) == y).float().mean()}


class OneByOne(Small):
    """The same points from a dataset that gives one at a time and draws noise from torch."""

    def data(self) -> Data:
        data = super().data()
        return Data(Noisy(data.train), data.validation)


class Noisy(Dataset):
    def __init__(self, data):
        self._data = data

    def __len__(self):
        return len(self._data)

    def __getitem__(self, index):
        x, y = self._data[index]
        return x + 0.1 * torch.randn(4), y


class Recorded(Small):
    """Reports what was read and drawn: the examples in their order, and noise as it came."""

    def data(self) -> Data:
        data = super().data()
        return Data(Numbered(data.train), Numbered(data.validation))

    def loss(self, model, batch):
        x, y, indices, noise = batch
        if model.training:
            kept = nn.functional.dropout(torch.ones(8), 0.5)
            print("read", indices.tolist(), noise.tolist(), kept.tolist(), flush=True)
        return super().loss(model, (x, y))

    def metrics(self, model, batch):
        return super().metrics(model, batch[:2])


class Numbered(Noisy):
    def __getitem__(self, index):
        return *self._data[index], index, random.random() + numpy.random.random()


class Stepped(Small):
    """Its optimiser's options and the weight of its loss may change by Steps; no schedule.

    Dropout is what is in force where the model is made.
    """

    def model(self):
        model = super().model()
        model[3].p = self.now("dropout") if "dropout" in self.params else 0.3
        return model

    def optimizer(self, model):
        options = {name: self.params[name] for name in ("lr", "weight_decay")}
        if self.params.get("optimizer") == "adam":
            return torch.optim.AdamW(model.parameters(), **options)
        return torch.optim.SGD(model.parameters(), momentum=0.9, **options)

    def schedule(self, optimizer):
        return None

    def loss(self, model, batch):
        return super().loss(model, batch) * self.now("weight")


class TwoRates(Stepped):
    """One group of parameters has a tenth of the rate."""

    def optimizer(self, model):
        lr = self.params["lr"]
        slow = {"params": model[0].parameters(), "lr": lr / 10}
        return torch.optim.SGD([slow, {"params": model[1:].parameters()}], lr=lr)


class Cosine(Stepped):
    """A schedule of torch's together with values that change by ``Steps``."""

    def schedule(self, optimizer):
        return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=6)


class Early(Stepped):
    """Reads a later piece: in the way that its parameters name."""

    def model(self):
        match self.params["way"]:
            case "params":
                return self.params["lr@2"]
            case "get":
                return self.params.get("lr@2")
            case "in":
                return "lr@2" in self.params
            case "now":
                return self.now("lr@2")


class Slow(Small):
    """Training that lasts until somebody stops it; it says so in a file when it is under way."""

    def data(self) -> Data:
        return Data(TensorDataset(*(t.repeat(20_000, 1).squeeze() for t in _columns())), points())

    def loss(self, model, batch):
        if not getattr(self, "told", False):
            self.told = True
            print("under way", flush=True)
        return super().loss(model, batch)


class Long(Small):
    """A network with ``steps`` steps an epoch that is much faster together with others."""

    def model(self) -> nn.Module:
        inner = [layer for _ in range(6) for layer in (nn.Linear(8, 8), nn.ReLU())]
        return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), *inner, nn.Linear(8, 2))

    def data(self) -> Data:
        count = self.batch_size * self.params.get("steps", 100)
        x = torch.randn(count, 4, generator=torch.Generator().manual_seed(1))
        return Data(TensorDataset(x, (x.sum(1) > 0).long()), points())


class Waits(Long):
    """Each step waits a moment, be it of one or of many: together it is faster on any machine."""

    def loss(self, model, batch):
        time.sleep(self.params.get("pause", 0.002))
        return super().loss(model, batch)


class SlowTogether(Long):
    """Its steps are slower together than alone, on any machine."""

    def loss(self, model, batch):
        if torch._C._functorch.is_batchedtensor(batch[0]):
            _ = [each.sum() for each in model.parameters() for _ in range(5)]
        return super().loss(model, batch)


class Paced(Long):
    """A trial whose steps take at least ``pause`` seconds, and whose loss is random."""

    model = Small.model

    def loss(self, model, batch):
        time.sleep(self.params.get("pause", 0.002))
        return (
            super().loss(model, batch) * random.uniform(0.9, 1.1) * numpy.random.uniform(0.9, 1.1)
        )


class Speaks(Paced):
    """Says in two parts, in each step, which trial it is."""

    def loss(self, model, batch):
        print("this is", end=" ")
        value = super().loss(model, batch)
        print(self.params["who"])
        return value


def _columns():
    x, y = points().tensors
    return x, y.unsqueeze(1)


class Careless(Small):
    """Draws from a generator that nothing keys: a replay comes out differently."""

    drawn = torch.Generator()
    drawn.seed()

    def loss(self, model, batch):
        return super().loss(model, batch) * (1 + torch.rand((), generator=self.drawn))


class Drifts(Small):
    """Each process that trains it changes the gradients in a way of its own."""

    def clip(self, model):
        for parameter in model.parameters():
            parameter.grad += 1e-3 * torch.rand((), generator=Careless.drawn)


class Unordered(Small):
    """Uses an operation that has no deterministic kernel."""

    def loss(self, model, batch):
        torch.zeros(3).put_(torch.tensor([1]), torch.tensor([2.0]))
        return super().loss(model, batch)


class Threaded(Small):
    """Takes more threads than the device has cores."""

    def loss(self, model, batch):
        torch.set_num_threads(3)
        return super().loss(model, batch)


class Counts(nn.Linear):
    """Counts examples in a buffer that nothing combines over shards, and averages in another."""

    def __init__(self):
        super().__init__(4, 2)
        self.register_buffer("seen", torch.zeros(()))
        self.register_buffer("centre", torch.zeros(4))

    def forward(self, x):
        if self.training:
            self.seen += len(x)
            self.centre = 0.9 * self.centre + 0.1 * x.mean(0)
        return super().forward(x)


class KeepsCount(Small):
    def model(self):
        return Counts()


class Raises(Small):
    def loss(self, model, batch):
        return self.helper()

    def helper(self):
        raise ValueError("the dog ate the batch")


class RaisesIn(Small):
    """Raises in the process that its parameters name."""

    def loss(self, model, batch):
        if os.getpid() == self.params["pid"]:
            raise ValueError("a deliberate mistake")
        return super().loss(model, batch)


class GivesNan(Small):
    def metrics(self, model, batch):
        return {"accuracy": float("nan")}


class GivesOtherMetric(Small):
    def metrics(self, model, batch):
        return {"f1": 0.5}


class GivesSet(Small):
    def metrics(self, model, batch):
        return {"f1": {1, 2}}


class GivesThree(Small):
    def metrics(self, model, batch):
        return {"accuracy": 0.5, 3: torch.ones(3)}


class Exits(Small):
    def loss(self, model, batch):
        sys.exit(3)


class TooBig(Small):
    def model(self):
        return nn.Linear(1 << 24, 1 << 24)


class NoData(Small):
    def data(self) -> Data:
        raise FileNotFoundError("/nowhere/train.csv")


class Forks(Small):
    """Parent and child both take the step."""

    def loss(self, model, batch):
        child = os.fork()
        if child:
            os.waitpid(child, 0)
        return super().loss(model, batch)


class Dies(Small):
    def loss(self, model, batch):
        os.kill(os.getpid(), 11)


def not_a_trainable():
    """A function where a class belongs."""


def objective(trial):
    """Reports its parameter times the step; asks for one more parameter on the way."""
    x = trial.suggest_float("x", 0.0, 1.0)
    for step in range(6):
        if step == 3:
            trial.suggest_categorical("kind", ["a", "b"])
        trial.report(x * (step + 1), step)
        assert not trial.should_prune()
    return x * 100


def objective_prunes(trial):
    import optuna

    trial.report(0.25, 0)
    raise optuna.TrialPruned


def objective_returns_text(trial):
    return "good"


def objective_reports_nan(trial):
    trial.report(float("nan"), 0)


def objective_exits(trial):
    sys.exit("enough")


def objective_raises(trial):
    raise KeyError("missing")


def objective_draws(trial):
    """Reports what it drew from the generators that a process shares."""
    for step in range(4):
        trial.report(random.random() + numpy.random.random() + float(torch.rand(())), step)


def objective_tidies(trial):
    """Swallows what it can, and says in the log that it was unwound."""
    try:
        for step in range(9):
            try:
                trial.report(float(step), step)
            except Exception:
                print("swallowed", flush=True)
    finally:
        print(f"trial {trial.number} is unwound", flush=True)


def objective_that_prints(trial):
    """In all the ways that there are."""
    print("one\n\ntwo")
    logging.getLogger("users").warning("three")
    sys.stdout.buffer.write(b"four\n")
    print("five ...", end="", file=sys.stderr)
    print(file=sys.stderr)
    child = multiprocessing.get_context("fork").Process(target=print, args=("six",))
    child.start()
    child.join()
    os.write(1, b"past Python\n")
    print("not at its end", end="")
    return 1.0


def objective_that_closes_its_output(trial):
    sys.stdout.close()
    return 1.0


def objective_stubborn(trial):
    for step in itertools.count():
        try:
            trial.report(0.0, step)
        except BaseException:
            time.sleep(0.01)


def objective_that_waits(trial):
    """It describes itself, and waits for a file in its working directory."""
    trial.set_user_attr("stage", "waiting")
    while not Path("go").exists():
        time.sleep(0.01)
    return 1.0


def objective_with_a_thread_that_writes(trial):
    """Its thread writes when a file comes, and makes another one then."""

    def write():
        while not Path("go").exists():
            time.sleep(0.01)
        trial.set_user_attr("from", "a thread")
        Path("written").touch()

    writes = threading.Thread(target=write)
    writes.start()
    trial.report(1.0, 1)
    writes.join()
    return 1.0


def objective_that_writes_too_much(trial):
    trial.set_user_attr("x" * (1 << 20), "a key is no object")
    return 1.0


def objective_of_two(trial):
    trial.set_constraint("memory", 0.5)
    return [trial.suggest_float("x", 0, 1), 2]


def objective_of_two_reports(trial):
    trial.report(1.0, 0)
    return 1.0, 2.0
