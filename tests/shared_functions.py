"""Epoch functions of a twentieth of a second: of one a device has room for many, of one for one."""

from __future__ import annotations

import fcntl
import time
from pathlib import Path

from penstock import epoch_function


@epoch_function
def waits(trial):
    """As for a disk that serves many."""
    trial.load()
    for epoch in trial.epochs():
        time.sleep(0.05)
        trial.report({"loss": trial.params["x"]}, checkpoint={"epoch": epoch})


@epoch_function
def excludes(trial):
    """Has what only one can have, as a core is, however many others this machine runs meanwhile."""
    trial.load()
    with Path(trial.params["lock"]).open("w") as lock:
        for epoch in trial.epochs():
            fcntl.flock(lock, fcntl.LOCK_EX)
            time.sleep(0.05)
            fcntl.flock(lock, fcntl.LOCK_UN)
            trial.report({"loss": trial.params["x"]}, checkpoint={"epoch": epoch})
