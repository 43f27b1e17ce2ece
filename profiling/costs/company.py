"""What an epoch takes of each trial that is trained together with others, over what it takes alone.

The seconds of a step of K trials are taken to be ``own * K + common``: a trial's share falls with
1/K. So between two measured numbers of trials the ratio is linear in 1/K. Beyond the largest one it
is taken to stay.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from itertools import pairwise

from .segment_costs import blend


@dataclass(slots=True)
class Company:
    """Measured ratios by the number of trials that were trained together, each a blend."""

    ratios: dict[int, float] = field(default_factory=dict)

    @property
    def least(self) -> float:
        """The smallest ratio that is known; at most 1."""
        return min(self.ratios.values(), default=1.0)

    def observe(self, together: int, ratio: float) -> None:
        """Take in an epoch of ``together`` trials, more than one."""
        self.ratios[together] = blend(self.ratios.get(together), ratio)

    def ratio(self, together: int) -> float:
        """The ratio expected with so many together: 1 with one or none, or if nothing is known."""
        if together <= 1:
            return 1.0
        known = {1: 1.0, **self.ratios}
        if together in known:
            return known[together]
        numbers = sorted(known)
        above = bisect_left(numbers, together)
        if above == len(numbers):
            return known[numbers[-1]]
        fewer, more = list(pairwise(numbers))[above - 1]
        part = (1 / fewer - 1 / together) / (1 / fewer - 1 / more)
        return known[fewer] + part * (known[more] - known[fewer])
