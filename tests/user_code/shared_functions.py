"""Epoch functions that share a device well, and badly, however busy the machine is."""

from __future__ import annotations

import os
import time
from pathlib import Path

from penstock import epoch_function


@epoch_function
def waits(trial):
    """As for a disk that serves many."""
    trial.load()
    for epoch in trial.epochs():
        time.sleep(0.2)
        trial.report({"loss": trial.params["x"]}, checkpoint={"epoch": epoch})


@epoch_function
def hinders(trial):
    """Takes four times as long where another one was at work in the last second."""
    trial.load()
    seen = Path(trial.params["folder"])
    for epoch in trial.epochs():
        mine = seen / str(os.getpid())
        mine.touch()
        since = time.time() - 1.2
        others = [each for each in seen.iterdir() if each != mine and each.stat().st_mtime > since]
        time.sleep(0.8 if others else 0.2)
        trial.report({"loss": trial.params["x"]}, checkpoint={"epoch": epoch})
