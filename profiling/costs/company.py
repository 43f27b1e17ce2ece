"""What an epoch takes of each trial that is trained together with others, over what it takes alone.

The seconds of a step of K trials are taken to be ``own * K + common``: a trial's share falls with
1/K. So between two measured numbers of trials the ratio is linear in 1/K. Beyond the largest one it
is taken to stay.

More trials together are more at work before it is known which are good, so each has to pay: their
number is doubled for as long as that makes what an epoch takes smaller by ``PAYS``. The line
through all that was measured says so, because single measurements are noisy.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from itertools import pairwise

from .segment_costs import blend

#: By which part a ratio falls where twice as many trials together pay.
PAYS = 0.1
#: So many are together until so many epochs together were measured.
FIRST, SURE = 2, 8


@dataclass(slots=True)
class Company:
    """Measured ratios by the number of trials that were trained together, each a blend."""

    ratios: dict[int, float] = field(default_factory=dict)
    #: How many epochs were measured.
    observed: int = 0

    @property
    def least(self) -> float:
        """The smallest ratio that is known; at most 1."""
        return min(self.ratios.values(), default=1.0)

    def observe(self, together: int, ratio: float) -> None:
        """Take in an epoch of ``together`` trials, more than one."""
        self.ratios[together] = blend(self.ratios.get(together), ratio)
        self.observed += 1

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

    def worthwhile(self) -> int:
        """How many trials pay together, at most twice as many as were measured; 1: none do."""
        known = [(1 - 1 / together, 1 - ratio) for together, ratio in self.ratios.items()]
        if not known:
            return FIRST
        # Least squares: 1 - ratio = common * (1 - 1 / together).
        common = sum(x * y for x, y in known) / sum(x * x for x, _ in known)
        found = FIRST if self.observed < SURE else 1
        while found <= max(self.ratios):
            now, then = (1 - common * (1 - 1 / n) for n in (found, 2 * found))
            if then > (1 - PAYS) * now:
                break
            found *= 2
        return found
