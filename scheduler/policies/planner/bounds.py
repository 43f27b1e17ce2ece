"""Lower bounds of the makespan, which no plan can beat. The bounds serve to judge plans.

The fluid bound of trials j with work ``e_j`` (epochs) on n devices is the smallest T with ``sum_j
width_j(e_j / T) <= n``. Here ``width_j`` is the inverse of the concave hull of trial j's speeds
(``profiling.costs.hull``). A trial that ends by T has an average speed of at least ``e_j / T``, and
no mixture of widths reaches that speed on fewer devices on average. For concave speeds, no more
trials than devices and free resizes, the optimum equals the bound (Blazewicz et al. 2006).

The second bound takes into account that epochs are whole, and that an epoch ends at the width at
which it began. A trial that must end by T chooses how many epochs it runs at each width. The least
device-seconds of any such choice, summed over trials, must fit into n T.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from ....profiling.costs.hull import Hull
from ....profiling.costs.throughput import Shape
from .width_plan import Curve, curve_of

#: The number of bisections of T. The result is within 2**-30 of the true bound.
_STEPS = 30
#: The most epochs of a trial for which whole epochs are considered. For a longer trial, the fluid
#: demand is used, since whole epochs hardly change the demand.
_MAX_WHOLE_EPOCHS = 9
#: The most choices of widths kept while epochs are added one by one. More choices are merged, so
#: that the bound can only become lower.
_MAX_FRONT = 256


def fluid_bound(work: Sequence[tuple[float, Hull]], devices: float) -> float:
    """Return the fluid bound: the least time (seconds) in which ``devices`` can do all the work.

    Each item of ``work`` is an amount (for instance epochs) and the concave hull of the speeds
    (amount per second) at each width. ``devices`` is above 0, in the unit of the hulls' widths. The
    result is 0.0 if there is no work.
    """
    work = [(epochs, hull) for epochs, hull in work if epochs > 0]
    if not work:
        return 0.0
    wide = max(len(hull.widths) for _, hull in work)
    widths = np.array([[0.0, *_padded(hull.widths, wide)] for _, hull in work])
    speeds = np.array([[0.0, *_padded(hull.speeds, wide)] for _, hull in work])
    epochs = np.array([epochs for epochs, _ in work])
    slopes = np.diff(widths) / np.where(np.diff(speeds) > 0, np.diff(speeds), 1.0)
    rows = np.arange(len(work))

    def needed(seconds: float) -> float:
        """Return the mean number of devices with which all work ends within ``seconds``."""
        required = np.minimum(epochs / seconds, speeds[:, -1])
        index = np.clip((speeds < required[:, None]).sum(axis=1) - 1, 0, wide - 1)
        areas = widths[rows, index] + slopes[rows, index] * (required - speeds[rows, index])
        return float(areas.sum())

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
    """Return the least time (seconds) for all the work if each epoch keeps the width at its start.

    Each item of ``work`` is (epochs, seconds of one epoch on one device, shape). The result is 0.0
    if there is no work.
    """
    work = [each for each in work if each[0] > 0]
    if not work:
        return 0.0
    curves = [curve_of(shape, devices) for _, _, shape in work]

    def fits(limit: float) -> bool:
        area = 0.0
        for (epochs, level, shape), curve in zip(work, curves, strict=True):
            area += level * _least_device_time(epochs, shape, curve, devices, limit / level)
        return area <= devices * limit * (1 + 1e-12)

    low = max(e * level * c.factors[-1] for (e, level, _), c in zip(work, curves, strict=True))
    high = low
    while not fits(high):
        low, high = high, 2 * high
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return low


def _least_device_time(
    epochs: int, shape: Shape, curve: Curve, devices: int, limit: float
) -> float:
    """Return the least device time that ``epochs`` epochs use if they end within ``limit``.

    Both times are in units of the time of one epoch on one device. For up to ``_MAX_WHOLE_EPOCHS``
    epochs, the result is infinite if the epochs cannot end within ``limit``.
    """
    limit *= 1 + 1e-12
    if epochs > _MAX_WHOLE_EPOCHS:
        width = curve.hull.width_for(epochs / limit)
        # Below its narrowest width it would only wait.
        return width * limit
    times, areas = _front(epochs, shape, devices)
    index = int(np.searchsorted(times, limit, side="right")) - 1
    return float(areas[index]) if index >= 0 else float("inf")


@lru_cache(maxsize=4096)
def _front(epochs: int, shape: Shape, devices: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the possible times of ``epochs`` epochs, rising, and the least device time for each.

    Epochs are added one by one. If more than ``_MAX_FRONT`` choices are left, adjacent choices are
    merged into one that is as fast as the faster and as cheap as the cheaper. So the bound remains
    a bound.
    """
    curve = curve_of(shape, devices)
    factors = np.array(curve.factors)
    single = _pareto(factors, np.array(curve.widths) * factors)
    total = single
    for _ in range(epochs - 1):
        times = (total[0][:, None] + single[0][None, :]).ravel()
        areas = (total[1][:, None] + single[1][None, :]).ravel()
        total = _coarsened(*_pareto(times, areas))
    return total


def _pareto(times: np.ndarray, areas: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    order = np.lexsort((areas, times))
    times, areas = times[order], areas[order]
    least = np.minimum.accumulate(areas)
    is_front = np.concatenate(([True], areas[1:] < least[:-1]))
    return times[is_front], areas[is_front]


def _coarsened(times: np.ndarray, areas: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if len(times) <= _MAX_FRONT:
        return times, areas
    cuts = np.linspace(0, len(times), _MAX_FRONT + 1).astype(int)
    return times[cuts[:-1]], areas[cuts[1:] - 1]


def _padded(values: Sequence[float], length: int) -> list[float]:
    return [*values, *[values[-1]] * (length - len(values))]
