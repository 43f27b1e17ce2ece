"""What an epoch takes of each trial that is trained together with others, over what it takes alone.

The seconds of a step of K trials are taken to be ``own * K + common``: a trial's share falls with
1/K. So between two measured numbers of trials the ratio is linear in 1/K. Beyond the largest one it
is taken to stay.

Before trials sit together their trainer rehearses with copies of one of them. That is believed
until enough epochs together were measured. Then their number counts by the line that copies gave,
and by how much epochs took more or less than that.

More trials together are more at work before it is known which are good, so each has to pay: with
twice as many, what an epoch takes must be smaller by ``PAYS``. The line through all that is known
says so, because single measurements are noisy.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from math import log2
from statistics import fmean

from .segment_costs import blend

#: By which part a ratio falls where twice as many trials together pay.
PAYS = 0.1
#: How many copies of a trial its trainer steps together, one number after the other: two say
#: whether any company pays, and both together what a step has in common, and what of each trial.
COPIES = (2, 8)
#: Where nothing was rehearsed, so many are together until so many epochs together were measured.
FIRST, SURE = 2, 8


@dataclass(slots=True)
class Company:
    """Ratios by the number of trials that were trained together, each a blend."""

    ratios: dict[int, float] = field(default_factory=dict)
    #: How many epochs were measured.
    observed: int = 0
    #: Those of copies.
    rehearsed: dict[int, float] = field(default_factory=dict)

    @property
    def least(self) -> float:
        """The smallest ratio that was measured; at most 1."""
        return min(self.ratios.values(), default=1.0)

    def observe(self, together: int, ratio: float) -> None:
        """Take in an epoch of ``together`` trials, more than one."""
        self.ratios[together] = blend(self.ratios.get(together), ratio)
        self.observed += 1

    def rehearse(self, together: int, ratio: float) -> None:
        """Take in what copies of one trial have found of so many together."""
        self.rehearsed[together] = blend(self.rehearsed.get(together), ratio)

    def ratio(self, together: int) -> float:
        """The ratio expected with so many together: 1 with one or none, or if nothing is known."""
        if together <= 1:
            return 1.0
        known = {1: 1.0, **(self.ratios or self.rehearsed)}
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
        """How many trials pay together, at most twice as many as are known; 1: none do."""
        known, sure = self.rehearsed or self.ratios, self.observed >= SURE
        if not known:
            return FIRST
        own, common = _line(known)
        scale, most = 1.0, 2 * max((*self.rehearsed, *self.ratios))
        if sure and self.rehearsed:
            scale = fmean(ratio / (own + common / n) for n, ratio in self.ratios.items())
        prices = {
            n: (1.0 if n == 1 else scale * (own + common / n)) / (1.0 - PAYS) ** log2(n)
            for n in _doubled(1 if sure or self.rehearsed else FIRST, most)
        }
        return min(prices, key=lambda n: (round(prices[n], 9), -n))


def _doubled(least: int, most: int) -> Iterator[int]:
    while least <= most:
        yield least
        least *= 2


def _line(known: Mapping[int, float]) -> tuple[float, float]:
    """``own`` and ``common`` of the ratio ``own + common / n``, by least squares.

    Of one number of trials alone, the line goes through 1 with one trial. Nobody is taken to get
    slower because there are more.
    """
    points = [(1.0 / n, ratio) for n, ratio in known.items()]
    if len(points) == 1:
        [(x, y)] = points
        common = (1.0 - y) / (1.0 - x)
        return 1.0 - common, common
    x_mean = sum(x for x, _ in points) / len(points)
    y_mean = sum(y for _, y in points) / len(points)
    squares = sum((x - x_mean) ** 2 for x, _ in points)
    common = max(0.0, sum((x - x_mean) * (y - y_mean) for x, y in points) / squares)
    return max(0.0, y_mean - common * x_mean), common
