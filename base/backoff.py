"""Waiting before a retry after failures: one rule for processes, devices, stores and brokers.

The first failures in a row cost no wait, since most happen once. Then each wait is twice the one
before, up to a longest one. Nothing here reads a clock: times are arguments, in seconds of any
clock, as in a replay.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

#: The most doublings that are counted: 2.0 to the power of a thousand failures would overflow.
_MOST_DOUBLINGS = 60


@dataclass(frozen=True, slots=True)
class Backoff:
    """The waits (seconds) after failures in a row. The first ``free`` failures cause no wait."""

    first: float
    longest: float
    free: int = 0

    def after(self, failures: int) -> float:
        """Return the seconds to wait after this many failures in a row."""
        doublings = min(failures - self.free - 1, _MOST_DOUBLINGS)
        return min(self.longest, self.first * 2.0**doublings) if doublings >= 0 else 0.0


#: A process that ran for this many seconds was healthy: its next end counts as a first one.
HEALTHY_AFTER = 10.0
#: A process that ends is started again at once. If it keeps ending, it is started after 0.5, 1, 2 …
#: 10 s.
RESTARTS = Backoff(first=0.5, longest=10.0, free=1)


@dataclass(frozen=True, slots=True)
class Restarts:
    """The starts and ends of a process that must keep running, and the time of the next start."""

    #: Time of the last start.
    began: float = -math.inf
    #: Earliest time of the next start. Set when the end of the process is noted.
    due: float = -math.inf
    #: Number of times in a row that the process ended soon after its start.
    early: int = 0

    def started(self, now: float) -> Restarts:
        """Return the state after a start of the process at ``now``."""
        return replace(self, began=now)

    def ended(self, now: float) -> Restarts:
        """Return the state after the process ended at ``now``."""
        early = 0 if now - self.began > HEALTHY_AFTER else self.early + 1
        return replace(self, due=now + RESTARTS.after(early), early=early)

    def is_healthy(self, now: float) -> bool:
        """Return True if both the last start and ``due`` are over ``HEALTHY_AFTER`` seconds ago."""
        return now - max(self.began, self.due) > HEALTHY_AFTER
