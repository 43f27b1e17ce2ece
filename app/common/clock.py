"""Time for the runner: the wall's, or a simulation's. Nothing below app/ reads a clock."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    def now(self) -> float:
        """Seconds since the epoch; never goes backwards."""


class WallClock:
    """Wall time, held still where the machine's clock is set back."""

    def __init__(self) -> None:
        self._last = 0.0

    def now(self) -> float:
        self._last = max(self._last, time.time())
        return self._last


class SimulatedClock:
    """A clock that only moves when it is told to."""

    def __init__(self, start: float = 0.0) -> None:
        self._now = start

    def now(self) -> float:
        return self._now

    def advance_to(self, moment: float) -> None:
        """Move to ``moment`` (seconds). ValueError when that lies in the past."""
        if moment < self._now:
            raise ValueError(f"time cannot go back from {self._now} to {moment}")
        self._now = moment
