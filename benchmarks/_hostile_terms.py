"""What attacking code and the benchmark have agreed on: the right values, and what is to end."""

from __future__ import annotations

import os
from pathlib import Path

EPOCHS = 3
#: What is reported by who may not speak for the trial.
IMPOSTOR = 9999.0
#: Seconds for which what should be ended would live.
LIVES = 600
#: The environment's word for where processes are written down that acts start.
MARKS = "HOSTILE_MARKS"


def value(x: float, epoch: int) -> float:
    """The right value of an epoch, exact in binary for the x that are used."""
    return x * 100 + epoch


def mark(pid: int) -> None:
    """Write down a process that an act has started."""
    with Path(os.environ[MARKS]).open("a") as file:
        file.write(f"{pid}\n")
