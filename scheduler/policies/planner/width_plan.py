"""Width plans, which say on how many devices each epoch of a trial runs, and their costs."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from ....profiling.costs.hull import Hull, hull
from ....profiling.costs.throughput import Shape
from ...model.snapshot import WidthPlan, steady


@dataclass(frozen=True, slots=True)
class Curve:
    """Values that planning derives from a shape (the time of an epoch by width)."""

    #: Rising widths, each faster than the narrower ones.
    widths: tuple[int, ...]
    #: The seconds of an epoch at each width, divided by the seconds on one device, falling.
    factors: tuple[float, ...]
    #: For each index in ``widths``: the index of the width with the fewest device-seconds per epoch
    #: among the widths from there on.
    most_efficient: tuple[int, ...]
    #: The widths at the breakpoints of the hull.
    breakpoints: tuple[int, ...]
    #: The concave hull of the speeds.
    hull: Hull
    #: The value in ``factors``, by width.
    factor: Mapping[int, float]


@lru_cache(maxsize=1024)
def curve_of(shape: Shape, devices: int, keep: int = 0) -> Curve:
    """Return the curve of ``shape`` on at most ``devices`` devices.

    The width ``keep`` is included even if a narrower one is faster, because the trial runs at it.
    """
    widths: list[int] = []
    factors: list[float] = []
    factor: dict[int, float] = {}
    for width, factor_at in shape:
        if width > devices:
            break
        if not factors or factor_at < factors[-1]:
            widths.append(width)
            factors.append(factor_at)
            factor[width] = factor_at
        elif width == keep:
            factor[width] = factor_at
    if keep not in factor and keep:
        factor[keep] = factors[-1]
    most_efficient = [len(widths) - 1]
    for index in range(len(widths) - 2, -1, -1):
        best = most_efficient[-1]
        better = widths[index] * factors[index] <= widths[best] * factors[best]
        most_efficient.append(index if better else best)
    breakpoints = hull(
        (width, 1 / factor_at) for width, factor_at in zip(widths, factors, strict=True)
    )
    return Curve(
        tuple(widths),
        tuple(factors),
        tuple(reversed(most_efficient)),
        tuple(map(int, breakpoints.widths)),
        breakpoints,
        factor,
    )


@dataclass(frozen=True, slots=True)
class Job:
    """A trial as the planner sees it, with the epochs that are left after its current epoch."""

    #: The trial's id.
    trial: str
    #: The number of whole epochs left after the current one.
    epochs: int
    #: Seconds until the current epoch ends; 0 if the trial waits.
    boundary: float
    #: The number of devices that the current epoch uses; 0 if the trial waits.
    held: int
    #: The width at which the trial runs or last ran; 0 before its first epoch.
    last: int
    #: Seconds of an epoch on one device.
    level: float
    #: The time of an epoch as a function of the width.
    curve: Curve
    #: The cost of a resize (seconds).
    resize_cost: float
    #: The weight of the job's end in the mean completion.
    weight: float = 1.0

    def seconds(self, width: int) -> float:
        """Return the seconds of an epoch on ``width`` devices."""
        return self.level * self.curve.factor[width]

    def switch_cost(self, width: int, before: int) -> float:
        """Return the seconds that a switch from ``before`` to ``width`` devices takes.

        The result is 0.0 if the width stays the same, or if ``before`` is 0 (a start).
        """
        return self.resize_cost if before not in (0, width) else 0.0

    @property
    def fastest(self) -> float:
        """Seconds of an epoch at the fastest width."""
        return self.level * self.curve.factors[-1]

    @property
    def work(self) -> float:
        """Seconds on one device for all remaining work, including the rest of the current epoch."""
        begun = self.boundary / self.curve.factor[self.held] if self.held else 0.0
        return self.level * self.epochs + begun


def cheapest_width_plan(job: Job, target: float) -> tuple[float, WidthPlan] | None:
    """Return (device-seconds, width plan) of the cheapest plan that ends within ``target`` seconds.

    Return None if no plan ends in time. Plans with a single width are tried, and plans that mix two
    neighbouring breakpoints of the hull around the speed that is needed. A fluid schedule would mix
    exactly these two widths.
    """
    limit = (target - job.boundary) * (1 + 1e-9)
    if job.epochs == 0:
        return (0.0, steady(job.held)) if limit >= 0 else None
    first = job.curve.widths[0]
    if job.last in (0, first) and job.curve.most_efficient[0] == 0:
        duration = job.epochs * job.seconds(first)
        if duration <= limit:  # true of most jobs; nothing is cheaper
            return first * duration, steady(first)
    best: tuple[float, WidthPlan] | None = None
    if job.last in job.curve.factor and job.epochs * job.seconds(job.last) <= limit:
        best = (job.last * job.epochs * job.seconds(job.last), steady(job.last))
    for width in _feasible_widths(job, limit):
        duration = job.epochs * job.seconds(width) + job.switch_cost(width, job.last)
        if duration <= limit and (best is None or width * duration < best[0] * (1 - 1e-9)):
            best = (width * duration, steady(width))
    breakpoints = job.curve.breakpoints
    required_speed = job.epochs * job.level / limit if limit > 0 else math.inf
    index = bisect_left(job.curve.hull.speeds, required_speed)
    for upper in (index, index + 1):  # with the price, the next pair may be needed
        if not 0 < upper < len(breakpoints):
            continue
        narrow, wide = breakpoints[upper - 1], breakpoints[upper]
        slow, fast = job.seconds(narrow), job.seconds(wide)
        resize_cost = job.resize_cost * (1 if job.last in (0, narrow, wide) else 2)
        epochs = math.ceil((job.epochs * slow + resize_cost - limit) / (slow - fast))
        if 0 < epochs < job.epochs:
            area = epochs * fast * wide + ((job.epochs - epochs) * slow + resize_cost) * narrow
            if best is None or area < best[0] * (1 - 1e-9):
                best = (area, WidthPlan(narrow, wide, epochs))
            break
    return best


def _feasible_widths(job: Job, limit: float) -> tuple[int, ...]:
    """Return the widths with the fewest device-seconds at which the job ends within ``limit``.

    The first width leaves no time for a resize. If the job has run before and a resize takes time,
    the second width leaves that time. A width is left out if no width is fast enough.
    """
    widths = []
    factors = job.curve.factors
    for available in (limit, limit - job.resize_cost) if job.resize_cost and job.last else (limit,):
        max_factor = available / (job.epochs * job.level)
        # The first width that is fast enough; the factors fall.
        index = bisect_left(factors, -max_factor, key=lambda each: -each)
        if index < len(factors):
            widths.append(job.curve.widths[job.curve.most_efficient[index]])
    return tuple(widths)
