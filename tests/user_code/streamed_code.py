"""Training code whose examples are read one by one, with random numbers."""

from __future__ import annotations

import random
import time
from pathlib import Path

import torch
from penstock.tasks.contracts.contract import Data
from torch.utils.data import Dataset

from user_code.trainees import Small, points

#: The examples that were read in this process.
READ = []


#: Seconds that ``Slowly`` takes for an example, at least.
PAUSE = 5e-4


class Counted(Dataset):
    """Points with noise from three generators; the examples that were read are noted."""

    def __init__(self, n):
        self._data = points(n)

    def __len__(self):
        return len(self._data)

    def __getitem__(self, i):
        READ.append(i)
        x, y = self._data[i]
        return x + torch.randn(4) + random.gauss(0, 1), y


class Noisy(Small):
    """80 examples in batches of 20, and 10 of validation, which are read one by one, too."""

    def data(self):
        return Data(Counted(80), Counted(10))


class Slowly(Counted):
    """It takes a pause to read an example."""

    def __getitem__(self, i):
        time.sleep(PAUSE)
        return super().__getitem__(i)


class Slower(Slowly):
    """Reading takes far longer than all else, on a busy machine too."""

    def __getitem__(self, i):
        time.sleep(5 * PAUSE)
        return super().__getitem__(i)


class ReadSlowly(Noisy):
    """Nearly all of an epoch is reading."""

    def data(self):
        return Data(Slowly(80), Slowly(10))


class Logged(Counted):
    """Reading takes far longer than handing over, on a busy machine too.

    It notes in a file, a byte each, how many examples all processes have read.
    """

    def __init__(self, n, log):
        super().__init__(n)
        self._log = log

    def __getitem__(self, i):
        with Path(self._log).open("ab", buffering=0) as log:
            log.write(b".")
        time.sleep(6 * PAUSE)
        return super().__getitem__(i)


class ReadAndLogged(Noisy):
    """Its parameter ``log`` names the file."""

    def data(self):
        log = self.params["log"]
        return Data(Logged(80, log), Logged(10, log))


class ReadAndLoggedApart(ReadAndLogged):
    """``data()`` reads what differs in each trial, so no other one is known to read the same."""

    def data(self):
        assert self.params["lr"]
        return super().data()


class StepsSlowly(Noisy):
    """Nearly all of an epoch is not reading."""

    def loss(self, model, batch):
        time.sleep(0.15)
        return super().loss(model, batch)


class InPlace(Noisy):
    """Changes what it gets, as each trial has it, and through NumPy, which torch does not see."""

    def loss(self, model, batch):
        x, y = batch
        x.mul_(self.params["scale"])
        y.numpy()[0] ^= 1
        return super().loss(model, (x, y))


class MayFail(Noisy):
    """A trial that, with parameter ``fails``, fails in its ninth step, amid an epoch."""

    steps = 0

    def loss(self, model, batch):
        self.steps += model.training
        if self.steps == 9 and self.params["fails"]:
            raise ValueError("no")
        return super().loss(model, batch)
