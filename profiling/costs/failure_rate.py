"""How often an attempt is lost, as observed: what decides how often states become durable.

A loss is an attempt whose memory is gone: its worker or device vanished, or its trainer died. The
estimate is the mean of the rate's distribution after Bayes with a Gamma prior: ``PRIOR`` seconds of
work with one loss in them, as if seen before. Older observations fade, so that an installation that
has moved to machines of another kind is believed after a while.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

#: Shortest time between two checkpoints of a trial (seconds), however cheap they are.
SHORTEST = 1.0
#: Seconds of one slot's work in which one loss is assumed before anything was observed. Too short
#: costs writes, too long costs replays; both grow with the square root only.
PRIOR = 3600.0
#: Seconds of one slot's work after which an observation counts half.
MEMORY = 100 * 3600.0


@dataclass(slots=True)
class FaultTable:
    """Seconds of work of slots, and losses within them; both fade with work."""

    busy: float = 0.0
    losses: float = 0.0

    def saw_work(self, seconds: float) -> None:
        """Take in that one slot had an attempt for so long, however it ended."""
        fade = 1.0 / (1.0 + max(0.0, seconds) / MEMORY)
        self.busy = fade * self.busy + max(0.0, seconds)
        self.losses *= fade

    def saw_loss(self) -> None:
        """Take in that an attempt's memory was lost."""
        self.losses += 1.0

    @property
    def mtbf(self) -> float:
        """Mean seconds of one slot's work between two losses."""
        return (PRIOR + self.busy) / (1.0 + self.losses)


def checkpoint_interval(cost: float, mtbf: float) -> float:
    """Seconds of training after which a state is made durable: ``sqrt(2 * cost * mtbf)``.

    J. W. Young, "A first order approximation to the optimum checkpoint interval", CACM 17(9), 1974;
    J. T. Daly, FGCS 22(3), 2006. It balances writing (``cost`` seconds each) against what a loss
    makes to be computed again (half an interval, once in ``mtbf`` seconds), for ``cost`` much less
    than ``mtbf``. At least ``SHORTEST``.

    >>> checkpoint_interval(0.02, 3600.0)
    12.0
    """
    return max(SHORTEST, math.sqrt(2.0 * cost * mtbf))
