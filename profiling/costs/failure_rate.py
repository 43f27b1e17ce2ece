"""The observed rate at which attempts are lost, which decides how often states become durable.

A loss is an attempt whose memory is gone: its worker or device vanished, or its trainer died. The
estimate is the mean of the rate's posterior distribution under a Gamma prior: ``PRIOR`` seconds of
work with one loss in them. Older observations fade, so the estimate adapts when an installation
moves to other machines.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

#: Shortest time between two checkpoints of a trial (seconds), however cheap they are.
SHORTEST = 1.0
#: The prior: seconds of one slot's work with one loss. Too short a value costs writes, too long a
#: value costs replays; both costs grow only with its square root.
PRIOR = 3600.0
#: Seconds of one slot's work that reduce the weight of an observation to 1/2 (in one attempt) or to
#: 1/e (in many short ones).
MEMORY = 100 * 3600.0


@dataclass(slots=True)
class FaultTable:
    """Seconds of slots' work, and losses in that time. Both fade with work."""

    busy: float = 0.0
    losses: float = 0.0

    def observe_work(self, seconds: float) -> None:
        """Add ``seconds``, at least 0, that one slot spent on an attempt, however it ended."""
        fade = 1.0 / (1.0 + seconds / MEMORY)
        self.busy = fade * self.busy + seconds
        self.losses *= fade

    def observe_loss(self) -> None:
        """Count an attempt that was lost, with its memory."""
        self.losses += 1.0

    @property
    def mtbf(self) -> float:
        """The mean seconds of one slot's work between two losses."""
        return (PRIOR + self.busy) / (1.0 + self.losses)


def checkpoint_interval(cost: float, mtbf: float) -> float:
    """Return seconds of training after which a state is made durable: ``sqrt(2 * cost * mtbf)``.

    J. W. Young, "A first order approximation to the optimum checkpoint interval", CACM 17(9), 1974;
    J. T. Daly, FGCS 22(3), 2006. The interval balances the time for writing (``cost`` seconds each)
    against the time for computing again after a loss (half an interval, once in ``mtbf`` seconds).
    It holds for ``cost`` much less than ``mtbf``. It is at least ``SHORTEST``.

    >>> checkpoint_interval(0.02, 3600.0)
    12.0
    """
    return max(SHORTEST, math.sqrt(2.0 * cost * mtbf))
