"""Training code for the integration tests: good, slow, and wrong in each way a user's can be."""

from __future__ import annotations

import ctypes
import math
import os
import sys
import time
from pathlib import Path

from trainees import Small


class Mischief(Small):
    """Small, and as parameter ``how`` says: it learns well with ``fine``."""

    def data(self):
        if self.params["how"] == "no data":
            (Path(__file__).parent / "no-such-folder" / "train.csv").read_bytes()
        return super().data()

    def loss(self, model, batch):
        how = self.params["how"]
        if how == "raises":
            raise ValueError("the dog ate the batch")
        if how == "exits":
            sys.exit(3)
        if how == "loops":
            while True:
                pass
        if how == "too big":
            bytearray(1 << 60)
        return super().loss(model, batch)

    def metrics(self, model, batch):
        found = super().metrics(model, batch)
        if self.params["how"] == "nan":
            return {"accuracy": float("nan")}
        return {"f1": 0.5} if self.params["how"] == "other metric" else found


class OnceUnlucky(Small):
    """Its first attempt fails in the second epoch, the next one does not (the file tells)."""

    def loss(self, model, batch):
        self.steps = getattr(self, "steps", 0) + 1
        marker = Path(self.params["marker"])
        if self.steps > 10 and model.training and not marker.exists():
            marker.touch()
            raise OSError("the disk was away for a moment")
        return super().loss(model, batch)


WAYS = ["fine", "raises", "nan", "segfaults"]


def mischief(trial):
    """An objective that reports twice and goes wrong in between."""
    how = trial.suggest_categorical("how", WAYS)
    trial.report(0.5, 0)
    if how == "raises":
        raise ValueError("the cat sat on the keyboard")
    if how == "nan":
        trial.report(float("nan"), 1)
    if how == "segfaults":
        ctypes.string_at(0)
    trial.report(0.75, 1)
    return 0.75


def boundless(trial):
    """Asks for a value out of a range that has none."""
    return trial.suggest_float("x", -math.inf, math.inf)


def slow(trial):
    """Twenty epochs of a tenth of a second."""
    x = trial.suggest_float("x", 0.0, 1.0)
    for step in range(20):
        time.sleep(0.1)
        trial.report(x * (step + 1), step)
    return x


def quick(trial):
    """Three epochs of nothing."""
    x = trial.suggest_float("x", 0.0, 1.0)
    for step in range(3):
        trial.report(x + step, step)
    return x


def where(trial):
    """Says which process computed it."""
    time.sleep(0.1)
    trial.suggest_float("x", 0.0, 1.0)
    return float(os.getpid())
