"""Slowdown of a fused group: seconds of an epoch per trial in the group divided by seconds alone.

The seconds of a step of K trials are modelled as ``own * K + common``, so a trial's share falls
with 1/K. Between two measured numbers of trials the ratio is linear in 1/K. Beyond the largest one
it is assumed constant.

Before trials are fused, their trainer probes groups of copies of one of them. The probed ratios
decide the size of groups until enough epochs of fused groups were measured. From then on the line
through the probed ratios is scaled by the mean factor between measured and probed ratios.

A larger group starts more trials before it is known which trials are good, so its size has to pay:
each time the number of trials doubles, a trial's share must fall by ``PAYS``. A line through all
measurements decides this, because single measurements are noisy.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from math import log2
from statistics import fmean

from .segment_costs import blend

#: The part by which a ratio must fall for a fused group of twice the size to pay.
PAYS = 0.1
#: Sizes of the groups of copies that a trainer probes, one after the other. Two copies show whether
#: fused groups pay at all; both sizes together show ``own`` and ``common``.
COPIES = (2, 8)
#: Without a probe, groups have at least ``FIRST`` trials until ``SURE`` epochs of groups were
#: measured.
FIRST, SURE = 2, 8


@dataclass(slots=True)
class GroupSlowdown:
    """Ratios by the size of the fused group. Each is an exponentially weighted mean."""

    ratios: dict[int, float] = field(default_factory=dict)
    #: The number of measured epochs.
    observed: int = 0
    #: Ratios of probed groups of copies, by size. The field has this name in snapshots.
    rehearsed: dict[int, float] = field(default_factory=dict)

    @property
    def least(self) -> float:
        """The smallest measured ratio; at most 1."""
        return min(self.ratios.values(), default=1.0)

    def observe(self, size: int, ratio: float) -> None:
        """Add the measured ratio of an epoch of a group of ``size`` trials, at least two."""
        self.ratios[size] = blend(self.ratios.get(size), ratio)
        self.observed += 1

    def observe_probe(self, size: int, ratio: float) -> None:
        """Add the ratio that a probe of ``size`` copies of one trial measured."""
        self.rehearsed[size] = blend(self.rehearsed.get(size), ratio)

    def ratio(self, size: int) -> float:
        """Return the expected ratio in a fused group of ``size`` trials.

        It is 1.0 if ``size <= 1`` or nothing is known.
        """
        if size <= 1:
            return 1.0
        ratios = {1: 1.0, **(self.ratios or self.rehearsed)}
        if size in ratios:
            return ratios[size]
        numbers = sorted(ratios)
        above = bisect_left(numbers, size)
        if above == len(numbers):
            return ratios[numbers[-1]]
        fewer, more = list(pairwise(numbers))[above - 1]
        part = (1 / fewer - 1 / size) / (1 / fewer - 1 / more)
        return ratios[fewer] + part * (ratios[more] - ratios[fewer])

    def worthwhile(self) -> int:
        """Return the size of group that pays best, at most twice the largest known size.

        1 means that no group pays; ``FIRST`` is returned if nothing is known.
        """
        ratios, sure = self.rehearsed or self.ratios, self.observed >= SURE
        if not ratios:
            return FIRST
        own, common = _line(ratios)
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
    """Return ``own`` and ``common`` of the ratio ``own + common / n``, by least squares.

    With a single known number of trials, the line goes through 1 at one trial. Neither coefficient
    of a fit is negative: more trials are assumed never to raise the ratio.
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
