"""Lower bounds of the makespan: what no plan can beat, and what plans are measured by.

The fluid bound of trials j with work ``e_j`` (epochs) on n devices is the smallest T with
``sum_j width_j(e_j / T) <= n``, where ``width_j`` is the inverse of the concave hull of trial j's
speeds (``profiling.hull``). A trial that ends by T has an average speed of at least ``e_j / T``,
and no mixture of widths has it on fewer devices on average. For concave speeds and no more trials
than devices the optimum equals it (Blazewicz et al. 2006), resizes being free.

Epochs are whole, and one that began at a width ends at it. The second bound counts that: a trial
that must end by T chooses how many epochs it runs at each width; the least device-seconds of any
such choice, summed over trials, must fit into n T.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ..profiling.hull import Hull

#: Bisections of T: the bound is within 2**-30 of the truth.
_STEPS = 30
#: Choices of widths kept while epochs are added one by one; thinned beyond it, downwards.
_FRONT = 64


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


def whole_epochs_bound(work: Sequence[tuple[int, Mapping[int, float]]], devices: int) -> float:
    """Seconds that ``work`` (epochs left, seconds an epoch by width) takes at least; 0 for none."""
    fronts = [_front(epochs, seconds) for epochs, seconds in work if epochs > 0]
    if not fronts:
        return 0.0

    def fits(limit: float) -> bool:
        area = 0.0
        for times, areas in fronts:
            at = int(np.searchsorted(times, limit * (1 + 1e-12), side="right")) - 1
            if at < 0:
                return False
            area += float(areas[at])
        return area <= devices * limit * (1 + 1e-12)

    low, high = 0.0, max(float(times[-1]) for times, _ in fronts)
    while not fits(high):
        low, high = high, 2 * high
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return low


def _front(epochs: int, seconds: Mapping[int, float]) -> tuple[np.ndarray, np.ndarray]:
    """Least device-seconds of so many whole epochs by the time they may take, times rising.

    Epochs are added one by one. Where more than ``_FRONT`` choices are left, neighbours become one
    that is as fast as the faster and as cheap as the cheaper: the bound stays a bound.
    """
    one = _pareto(
        np.array(list(seconds.values())),
        np.array([width * each for width, each in seconds.items()]),
    )
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
