"""Objectives for the integration tests. They need no torch, so their trainers start at once."""

from __future__ import annotations

import ctypes
import math
import os
import signal
import time
from pathlib import Path

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


def forgetful(trial):
    """Has one bug for all of its trials."""
    x = trial.suggest_float("x", 0.0, 1.0)
    return {}[f"loss of {x}"]


def divided(trial):
    """Fails for some heads alone."""
    if trial.suggest_categorical("heads", [4, 5]) == 5:
        raise ValueError("heads must divide 64")
    return 1.0


def hungry(trial):
    """Asks for a gigabyte."""
    return float(len(bytearray(1 << 30)))


def slow(trial):
    """Twenty epochs of a twentieth of a second."""
    x = trial.suggest_float("x", 0.0, 1.0)
    for step in range(20):
        time.sleep(0.05)
        trial.report(x * (step + 1), step)
    return x


def waits(trial, gate):
    """All trials but the first wait until the file ``gate`` is there."""
    while trial.number and not Path(gate).exists():
        time.sleep(0.01)
    return trial.suggest_float("x", 0.0, 1.0)


def quick(trial):
    """Three epochs of nothing."""
    x = trial.suggest_float("x", 0.0, 1.0)
    for step in range(3):
        trial.report(x + step, step)
    return x


def stops_its_parent(trial):
    """Stops the process that has started it."""
    os.kill(os.getppid(), signal.SIGSTOP)
    return trial.suggest_float("x", 0.0, 1.0)


def harmless(trial):
    """Needs nothing but a trainer."""
    return trial.suggest_float("x", 0.0, 1.0)
