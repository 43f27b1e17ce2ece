"""Lower bounds of the makespan: what no plan can beat, and what plans are measured by.

The fluid bound of trials j with work ``e_j`` (epochs) on n devices is the smallest T with
``sum_j width_j(e_j / T) <= n``, where ``width_j`` is the inverse of the concave hull of trial j's
speeds (``profiling.costs.hull``). A trial that ends by T has an average speed of at least ``e_j /
T``, and no mixture of widths has it on fewer devices on average. For concave speeds and no more
trials than devices the optimum equals it (Blazewicz et al. 2006), resizes being free.

Epochs are whole, and one that began at a width ends at it. The second bound counts that: a trial
that must end by T chooses how many epochs it runs at each width; the least device-seconds of any
such choice, summed over trials, must fit into n T.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from ....profiling.costs.hull import Hull
from ....profiling.costs.throughput import Shape
from .width_plan import Curve, curve_of

#: Bisections of T: the bound is within 2**-30 of the truth.
_STEPS = 30
#: Of a trial with more epochs than this the fluid demand is taken: whole ones hardly differ then.
_WHOLE = 9
#: Choices of widths kept while epochs are added one by one; thinned beyond it, downwards.
_FRONT = 256


def fluid_bound(work: Sequence[tuple[float, Hull]], devices: float) -> float:
    """Seconds that all ``work`` (amount, hull of speeds in amounts a second) takes at least.

    ``devices`` are in the hulls' unit and above 0. 0 where there is no work.
    """
    work = [(epochs, hull) for epochs, hull in work if epochs > 0]
    if not work:
        return 0.0
    wide = max(len(hull.widths) for _, hull in work)
    widths = np.array([[0.0, *_stretched(hull.widths, wide)] for _, hull in work])
    speeds = np.array([[0.0, *_stretched(hull.speeds, wide)] for _, hull in work])
    epochs = np.array([epochs for epochs, _ in work])
    slopes = np.diff(widths) / np.where(np.diff(speeds) > 0, np.diff(speeds), 1.0)
    rows = np.arange(len(work))

    def needed(seconds: float) -> float:
        """Devices on average with which all end within ``seconds``."""
        wanted = np.minimum(epochs / seconds, speeds[:, -1])
        at = np.clip((speeds < wanted[:, None]).sum(axis=1) - 1, 0, wide - 1)
        found = widths[rows, at] + slopes[rows, at] * (wanted - speeds[rows, at])
        return float(found.sum())

    low = float((epochs / speeds[:, -1]).max())
    if needed(low) <= devices:
        return low
    high = 2 * low
    while needed(high) > devices:
        low, high = high, 2 * high
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if needed(middle) <= devices:
            high = middle
        else:
            low = middle
    return high


def whole_epochs_bound(work: Sequence[tuple[int, float, Shape]], devices: int) -> float:
    """Seconds that ``work`` takes at least on ``devices``, epochs being whole; 0 for none.

    ``work`` is (epochs, seconds of one on one device, shape).
    """
    work = [each for each in work if each[0] > 0]
    if not work:
        return 0.0
    curves = [curve_of(shape, devices) for _, _, shape in work]

    def fits(limit: float) -> bool:
        area = 0.0
        for (epochs, level, shape), curve in zip(work, curves, strict=True):
            area += level * _least(epochs, shape, curve, devices, limit / level)
        return area <= devices * limit * (1 + 1e-12)

    low = max(e * level * c.factors[-1] for (e, level, _), c in zip(work, curves, strict=True))
    high = low
    while not fits(high):
        low, high = high, 2 * high
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return low


def _least(epochs: int, shape: Shape, curve: Curve, devices: int, limit: float) -> float:
    """Least device-time of ``epochs`` epochs within ``limit``, both in epochs on one device."""
    limit *= 1 + 1e-12
    if epochs > _WHOLE:
        width = curve.hull.width_for(epochs / limit)
        # On less than its narrowest width it would only wait.
        return width * limit
    times, areas = _front(epochs, shape, devices)
    at = int(np.searchsorted(times, limit, side="right")) - 1
    return float(areas[at]) if at >= 0 else float("inf")


@lru_cache(maxsize=4096)
def _front(epochs: int, shape: Shape, devices: int) -> tuple[np.ndarray, np.ndarray]:
    """Least device-time of so many whole epochs by the time they may take, times rising.

    Epochs are added one by one. Where more than ``_FRONT`` choices are left, neighbours become one
    that is as fast as the faster and as cheap as the cheaper: the bound stays a bound.
    """
    curve = curve_of(shape, devices)
    factors = np.array(curve.factors)
    one = _pareto(factors, np.array(curve.widths) * factors)
    total = one
    for _ in range(epochs - 1):
        times = (total[0][:, None] + one[0][None, :]).ravel()
        areas = (total[1][:, None] + one[1][None, :]).ravel()
        total = _thinned(*_pareto(times, areas))
    return total


def _pareto(times: np.ndarray, areas: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    order = np.lexsort((areas, times))
    times, areas = times[order], areas[order]
    least = np.minimum.accumulate(areas)
    kept = np.concatenate(([True], areas[1:] < least[:-1]))
    return times[kept], areas[kept]


def _thinned(times: np.ndarray, areas: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if len(times) <= _FRONT:
        return times, areas
    edges = np.linspace(0, len(times), _FRONT + 1).astype(int)
    return times[edges[:-1]], areas[edges[1:] - 1]


def _stretched(values: Sequence[float], length: int) -> list[float]:
    return [*values, *[values[-1]] * (length - len(values))]
