"""Predictors of step times from a few measured ones: ours, and simpler ones to compare it with."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from penstock.profiling.costs.fitting import RATIOS, Prior, fit
from penstock.profiling.costs.reference_curves import Fitted
from penstock.profiling.costs.throughput import Allocation, Coefficients, Measured
from scipy import optimize

#: A part of a step below this one is as good as none, and so is an overlap (gamma - 1).
LEAST, LEAST_OVERLAP = 1e-3, 0.1
#: Points measured and places asked for; the logarithms of seconds, and of their deviations if any.
Predictor = Callable[[Sequence[Measured], Sequence[Allocation]], tuple[Any, Any]]


def linear(points: Sequence[Measured], places: Sequence[Allocation]) -> tuple[Any, None]:
    """Seconds in proportion to a device's batch."""
    level = np.mean([math.log(point.seconds / point.place.share) for point in points])
    return level + np.log([place.share for place in places]), None


def amdahl(points: Sequence[Measured], places: Sequence[Allocation]) -> tuple[Any, None]:
    """A part that every step costs, and one in proportion to a device's batch."""
    rows = np.array([[1.0, point.place.share] for point in points])
    seconds = np.array([point.seconds for point in points])
    parts, _ = optimize.nnls(rows / seconds[:, None], np.ones(len(points)))
    return np.log([parts[0] + parts[1] * place.share for place in places]), None


def least_squares(points: Sequence[Measured], places: Sequence[Allocation]) -> tuple[Any, None]:
    """AdaptDL's ``fit_perf_params`` (``goodput.py``) of step times alone, numeric derivatives."""
    logs = np.log([point.seconds for point in points])
    at, asked = _columns([point.place for point in points]), _columns(places)
    steps = np.vstack([np.zeros(7), 1e-7 * np.eye(7)])

    def losses(theta: Any) -> Any:
        """Of rows of parameters."""
        error = np.sqrt(np.mean((_formula(theta.T[..., None], at) - logs) ** 2, axis=1))
        small = (theta[:, 3] / theta[:, 2]) ** 2 + (theta[:, 5] / theta[:, 4]) ** 2
        return error + 1e-2 * small + 1e-3 * (theta[:, 6] - 1.0) ** 2

    def loss(theta: Any) -> tuple[float, Any]:
        found = losses(theta + steps)
        return float(found[0]), (found[1:] - found[0]) / 1e-7

    start = np.array([1e-1, 1e-2, 1e-1, 1e-2, 1e-1, 1e-2, 1.0 + 1e-3])
    low, high = np.array([1e-8] * 6 + [1.0]), np.array([np.inf] * 6 + [10.0])
    nodes, width, share = at
    if len(set(share)) == 1:
        start[0] = low[0] = high[0] = np.exp(logs).mean() / 2
    for seen, these in (
        ((nodes == 1) & (width > 1), [2, 3]),
        (nodes > 1, [4, 5]),
        (width > 2, [3, 5]),
    ):
        if not seen.any():
            start[these] = high[these] = low[these]
    bounds = optimize.Bounds(low, high, keep_feasible=True)
    found = optimize.minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds)
    return _formula(found.x, asked), None


def _columns(places: Sequence[Allocation]) -> tuple[Any, Any, Any]:
    return tuple(
        np.array(each) for each in zip(*((p.nodes, p.width, p.share) for p in places), strict=True)
    )


def _formula(theta: Any, at: tuple[Any, Any, Any]) -> Any:
    """Logarithm of ``Coefficients.seconds``, for many places."""
    nodes, width, share = at
    grad = theta[0] + theta[1] * share
    sync = np.where(
        nodes == 1, theta[2] + theta[3] * (width - 2), theta[4] + theta[5] * (width - 2)
    )
    both = (
        np.logaddexp(theta[6] * np.log(grad), theta[6] * np.log(np.maximum(sync, 1e-12))) / theta[6]
    )
    return np.where(width == 1, np.log(grad), both)


def ours(prior: Prior, spent: list[float]) -> Predictor:
    """``profiling.costs.fitting`` under ``prior``; the seconds of each fit go to ``spent``."""

    def predict(points: Sequence[Measured], places: Sequence[Allocation]) -> tuple[Any, Any]:
        began = time.thread_time()
        model = fit(points, prior)
        spent.append(time.thread_time() - began)
        found = [model.estimate(place) for place in places]
        return np.log([each.seconds for each in found]), [each.deviation for each in found]

    return predict


def prior_without(application: str, families: dict[tuple[str, str], Fitted]) -> Prior:
    """Of the coefficients of all other applications, whatever the cluster."""
    rows = [logarithms(each) for (name, _), each in families.items() if name != application]
    spread = np.maximum(1.0, np.nanstd(rows, axis=0, ddof=1))
    return Prior(tuple(map(float, np.nanmean(rows, axis=0))), tuple(map(float, spread)))


def logarithms(family: Fitted) -> list[float]:
    """As ``Prior`` has them, the global batch being the largest of a device; NaN: not measured."""
    values = [*asdict(family.coefficients).values()]
    values[1] *= family.local_batches[1]
    least = LEAST * (values[0] + values[1])
    ratios = [math.log(max(values[i], least) / max(values[j], least)) for i, j in RATIOS]
    if family.devices <= family.per_node:
        ratios[3] = ratios[4] = math.nan
    return [*ratios, math.log(max(values[6] - 1.0, LEAST_OVERLAP))]


def all_rows(points: Sequence[Measured], share: float) -> Coefficients:
    """Least squares of the logarithms of ``points``, robust (soft L1 from 0.1 on), no prior."""
    logs = np.log([point.seconds for point in points])
    at = _columns([point.place for point in points])

    def values(theta: Any) -> Any:
        found = np.exp(theta)
        return np.array([found[0], found[1] / share, *found[2:6], found[6] + 1.0])

    start = np.array([-1.0, -1.0, -1.0, -3.0, -1.0, -5.0, 0.5])
    start[:6] += np.mean(logs - _formula(values(start), at))
    found = optimize.least_squares(
        lambda theta: _formula(values(theta), at) - logs,
        start,
        bounds=([-16.0] * 7, [6.0] * 6 + [math.log(9.0)]),  # gamma: 10, as AdaptDL bounds it
        loss="soft_l1",
        f_scale=0.1,
    )
    return Coefficients(*(float(f"{value:.4g}") for value in values(found.x)))
