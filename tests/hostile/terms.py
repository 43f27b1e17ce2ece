"""Terms shared by attacking code and the benchmark: right values, and processes that must end."""

from __future__ import annotations

import os
from pathlib import Path

EPOCHS = 3
#: The value that a process reports which must not report for the trial.
IMPOSTOR = 9999.0
#: Seconds that a process would live which must be ended.
LIVES = 600
#: The environment variable that names the file in which acts record the processes that they start.
MARKS = "HOSTILE_MARKS"


def value(x: float, epoch: int) -> float:
    """The right value of an epoch, exact in binary for the x that are used."""
    return x * 100 + epoch


def mark(pid: int) -> None:
    """Record a process that an act has started."""
    with Path(os.environ[MARKS]).open("a") as file:
        file.write(f"{pid}\n")
