"""The course of a trial: on how many devices it runs each of its epochs, and what that costs."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from ....profiling.costs.hull import Hull, hull
from ....profiling.costs.throughput import Shape
from ...model.snapshot import Course, steady


@dataclass(frozen=True, slots=True)
class Curve:
    """What planning needs of a shape, worked out once for all trials that have it.

    ``widths`` rise, and each is faster than the narrower ones: ``factors`` fall. ``thrifty`` has
    for each place in ``widths`` that of the width, there or beyond, with the fewest device-seconds
    an epoch. ``breakpoints`` are those of the hull of the speeds.
    """

    widths: tuple[int, ...]
    factors: tuple[float, ...]
    thrifty: tuple[int, ...]
    breakpoints: tuple[int, ...]
    hull: Hull
    factor: Mapping[int, float]


@lru_cache(maxsize=1024)
def curve_of(shape: Shape, devices: int, kept: int = 0) -> Curve:
    """The curve of ``shape`` on at most ``devices`` devices.

    Width ``kept`` is in it even where a narrower one is faster: a trial is there already.
    """
    widths: list[int] = []
    factors: list[float] = []
    factor: dict[int, float] = {}
    for width, each in shape:
        if width > devices:
            break
        if not factors or each < factors[-1]:
            widths.append(width)
            factors.append(each)
            factor[width] = each
        elif width == kept:
            factor[width] = each
    if kept not in factor and kept:
        factor[kept] = factors[-1]
    thrifty = [len(widths) - 1]
    for at in range(len(widths) - 2, -1, -1):
        best = thrifty[-1]
        better = widths[at] * factors[at] <= widths[best] * factors[best]
        thrifty.append(at if better else best)
    edges = hull((width, 1 / each) for width, each in zip(widths, factors, strict=True))
    return Curve(
        tuple(widths),
        tuple(factors),
        tuple(reversed(thrifty)),
        tuple(map(int, edges.widths)),
        edges,
        factor,
    )


@dataclass(frozen=True, slots=True)
class Job:
    """A trial with ``epochs`` whole epochs left after the one that it is in.

    That one ends after ``boundary`` seconds on ``held`` devices (both 0 where it waits). ``last``
    is the width that it runs at or last ran at, 0 before its first epoch. An epoch takes ``level``
    seconds on one device, a resize ``price`` seconds. ``weight`` is how much its end counts among
    those of all, where these count.
    """

    trial: str
    epochs: int
    boundary: float
    held: int
    last: int
    level: float
    curve: Curve
    price: float
    weight: float = 1.0

    def seconds(self, width: int) -> float:
        """Seconds of an epoch on ``width`` devices."""
        return self.level * self.curve.factor[width]

    def switch(self, width: int, before: int) -> float:
        """Seconds that it costs to go on at ``width`` after ``before``; a start costs nothing."""
        return self.price if before not in (0, width) else 0.0

    @property
    def fastest(self) -> float:
        """Seconds of an epoch at the width that is fastest."""
        return self.level * self.curve.factors[-1]

    @property
    def work(self) -> float:
        """Seconds on one device for all that is left, with the rest of the epoch that it is in."""
        begun = self.boundary / self.curve.factor[self.held] if self.held else 0.0
        return self.level * self.epochs + begun


def cheapest_course(job: Job, target: float) -> tuple[float, Course] | None:
    """Least device-seconds with which ``job`` ends within ``target`` seconds, and how.

    None where it cannot. Steady courses, and those of the two breakpoints between which the speed
    is that it needs (a fluid schedule would mix just these).
    """
    limit = (target - job.boundary) * (1 + 1e-9)
    if job.epochs == 0:
        return (0.0, steady(job.held)) if limit >= 0 else None
    first = job.curve.widths[0]
    if job.last in (0, first) and job.curve.thrifty[0] == 0:
        taken = job.epochs * job.seconds(first)
        if taken <= limit:  # as most can: nothing is cheaper
            return first * taken, steady(first)
    best: tuple[float, Course] | None = None
    if job.last in job.curve.factor and job.epochs * job.seconds(job.last) <= limit:
        best = (job.last * job.epochs * job.seconds(job.last), steady(job.last))
    for width in _fitting(job, limit):
        taken = job.epochs * job.seconds(width) + job.switch(width, job.last)
        if taken <= limit and (best is None or width * taken < best[0] * (1 - 1e-9)):
            best = (width * taken, steady(width))
    edges = job.curve.breakpoints
    wanted = job.epochs * job.level / limit if limit > 0 else math.inf
    at = bisect_left(job.curve.hull.speeds, wanted)
    for over in (at, at + 1):  # the price may ask for a pair beyond
        if not 0 < over < len(edges):
            continue
        narrow, wide = edges[over - 1], edges[over]
        slow, fast = job.seconds(narrow), job.seconds(wide)
        price = job.price * (1 if job.last in (0, narrow, wide) else 2)
        epochs = math.ceil((job.epochs * slow + price - limit) / (slow - fast))
        if 0 < epochs < job.epochs:
            area = epochs * fast * wide + ((job.epochs - epochs) * slow + price) * narrow
            if best is None or area < best[0] * (1 - 1e-9):
                best = (area, Course(narrow, wide, epochs))
            break
    return best


def _fitting(job: Job, limit: float) -> tuple[int, ...]:
    """The thriftiest widths that end within ``limit``: without, and with the price of a resize."""
    found = []
    falling = job.curve.factors
    for left in (limit, limit - job.price) if job.price and job.last else (limit,):
        most = left / (job.epochs * job.level)
        # The first width that is fast enough, in factors that fall.
        at = bisect_left(falling, -most, key=lambda each: -each)
        if at < len(falling):
            found.append(job.curve.widths[job.curve.thrifty[at]])
    return tuple(found)
