"""Time for the runner: wall time or simulated time. Nothing below app/ reads a clock."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    def now(self) -> float:
        """Return the seconds since 1970. The value never decreases."""


class WallClock:
    """Wall time that never goes back.

    If the machine's clock is set back, ``now`` returns the same value until that clock catches up.
    """

    def __init__(self) -> None:
        self._last = 0.0

    def now(self) -> float:
        self._last = max(self._last, time.time())
        return self._last


class SimulatedClock:
    """A clock that moves only by ``advance_to``."""

    def __init__(self, start: float = 0.0) -> None:
        self._now = start

    def now(self) -> float:
        return self._now

    def advance_to(self, moment: float) -> None:
        """Move to ``moment`` (seconds). Raises ValueError if that lies in the past."""
        if moment < self._now:
            raise ValueError(f"time cannot go back from {self._now} to {moment}")
        self._now = moment
