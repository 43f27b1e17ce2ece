"""The cost model of a study: the common part of its trials' costs, and each trial's own curve.

Theory of operation. The logarithm of trial j's seconds an epoch on w devices is modelled as

    log s(w) + (b + c log w) . x_j + u_j(w)

``s`` is the study's *shape*: the throughput model (``fitting``) of the trials that ran at several
widths, each relative to its own level. Only such trials can tell the effect of the width from that
of the trial. ``x_j`` are the trial's features (1 and its hyperparameters). ``b`` and ``c``, by
ridge regression, are the features' effects on the level and on the gain from devices. ``u_j`` is
the trial's own part: a Gaussian process of a level, a tilt in log w and a smooth deviation. A
trial's own measurements determine most of it. For a trial that has not run it is 0 on average, with
a known deviation.

Gains are rounded to multiples of ``STEP``. Trials of equal gain that were not measured at several
widths therefore share a shape, and values that plans derive from a shape are computed once.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from .fitting import NOISE, fit
from .regression import Regression, regress
from .throughput import Estimate, Measured, Shape, packed_allocation

#: Prior standard deviations of a hyperparameter's effects on the level and on the gain.
EFFECT_DEVIATIONS = (1.0, 0.2)
#: Prior standard deviation of the logarithm of a study's level: any level is possible.
LEVEL_DEVIATION = 50.0
#: Prior standard deviations of a trial's own tilt in log width and of its smooth deviation, and the
#: reach of the latter.
TILT_DEVIATION = 0.1
SMOOTH_DEVIATION = 0.1
REACH = 1.0
#: The step to which gains are rounded.
STEP = 0.05
#: The most widths that a study's fit uses; its cost grows with their third power.
MAX_WIDTHS = 10
#: Rounds of fitting levels and shape in turn.
ROUNDS = 2
DIGITS = 9

#: At widths that were not measured, the cautious estimate is ``CAUTION`` deviations slower and the
#: optimistic one ``OPTIMISM`` deviations faster. Of 1, 2 and 3, this ``OPTIMISM`` was the best on
#: simulated studies: trials of different kinds differ by more than the deviations say.
CAUTION = 0.5
OPTIMISM = 3.0

#: A width is surely faster if its time divided by a narrower width's is at most this.
SURE_GAIN = 0.95

#: Seconds per epoch by width, of one trial.
Points = Mapping[int, float]


@dataclass(frozen=True, slots=True)
class Pool:
    """The common part of a study's trials: ``shape`` by width from 1 on, and the regression.

    Estimates of ``shape`` are relative to one device. ``measured`` are the widths of trials that
    were measured at several widths.
    """

    shape: tuple[Estimate, ...]
    regression: Regression
    measured: frozenset[int] = frozenset()

    def __hash__(self) -> int:
        """Hash the study's level, which distinguishes pools. This is called for every trial."""
        return int(1e9 * self.regression.mean[0])


class Expected(NamedTuple):
    """Expected seconds per epoch of a trial.

    ``level`` is on one device (None: nothing was measured), and ``deviation`` the standard
    deviation of its logarithm. ``shape`` is (width, seconds there divided by seconds on one device)
    from width 1 on, and has only sure gains: a width at which no trial of the study was measured
    gains no more than the next narrower width. ``likely`` has other gains, too. Both are cautious
    at widths at which the trial itself was not measured; ``hope`` is optimistic there.
    """

    level: float | None
    shape: Shape
    deviation: float
    hope: Shape
    likely: Shape


def pool(trials: Sequence[tuple[tuple[float, ...], Points]], widest: int) -> Pool:
    """Fit the pool of ``trials`` (features, points), at least one, for widths up to ``widest``."""
    # A trial with one width says nothing about the shape, only about the level.
    multi_width = [index for index, (_, points) in enumerate(trials) if len(points) > 1]
    shape = _prior(widest)
    size = 2 * len(trials[0][0]) + 1
    deviations = [LEVEL_DEVIATION, *(EFFECT_DEVIATIONS[index % 2] for index in range(size - 1))]
    # The shape is fitted first. Otherwise the features of the few trials that were measured at
    # several widths would explain how these trials differ from the prior, and would predict the
    # opposite for other trials.
    mean: Sequence[float] = (0.0,) * size
    for _ in range(ROUNDS):
        if multi_width:
            several = [trials[index] for index in multi_width]
            shape = _shape([*_relative(several, shape, mean)], widest)
        rows, values = [], []
        for features, points in trials:
            for width, seconds in points.items():
                rows.append(_row(features, width))
                values.append(math.log(seconds / shape[width - 1].seconds))
        regression = regress(rows, values, deviations)
        mean = regression.mean
        if not multi_width:
            break
    measured = (trials[index][1] for index in multi_width)
    return Pool(shape, regression, frozenset(width for points in measured for width in points))


def _relative(
    trials: Sequence[tuple[tuple[float, ...], Points]],
    shape: Sequence[Estimate],
    mean: Sequence[float],
) -> Iterator[Measured]:
    """Yield the seconds of ``trials``, less the effects ``mean``, relative to their own levels."""
    for features, points in trials:
        residuals = {
            width: math.log(seconds) - sum(map(operator.mul, _row(features, width), mean))
            for width, seconds in points.items()
        }
        own = _mean([rest - math.log(shape[w - 1].seconds) for w, rest in residuals.items()])
        for width, rest in residuals.items():
            yield Measured(packed_allocation(width), math.exp(rest - own))


def _shape(relative: Sequence[Measured], widest: int) -> tuple[Estimate, ...]:
    counts: dict[int, int] = {}
    for each in relative:
        counts[each.place.width] = counts.get(each.place.width, 0) + 1
    widths = sorted(counts, key=lambda width: (-counts[width], width))[:MAX_WIDTHS]
    points = [each for each in relative if each.place.width in widths]
    curve = fit(points or [Measured(packed_allocation(1), 1.0)]).curve(widest)
    return tuple(
        Estimate(
            each.place,
            round(each.seconds / curve[0].seconds, DIGITS),
            round(each.deviation if each.place.width > 1 else 0.0, DIGITS),
        )
        for each in curve
    )


def _row(features: tuple[float, ...], width: int) -> tuple[float, ...]:
    """Return 1, then each feature for the level and, times log width, for the gain."""
    log = math.log(width)
    return (1.0, *(part for each in features for part in (each, each * log)))


def expected(study: Pool, features: tuple[float, ...], points: Points, widest: int) -> Expected:
    """Return the expected costs of a trial with ``features`` and ``points``, up to ``widest``."""
    if len(points) > 1:
        return _own(study, features, tuple(points.items()), widest)
    for width, seconds in points.items():
        # The time at one width determines the level, and leaves the shape as it is.
        gain = _gain(study, features)
        reference = _common(study, gain)[width - 1]
        shape, likely, hope = _shapes(study, gain, widest, width)
        deviation = math.hypot(NOISE, reference.deviation)
        return Expected(seconds / reference.seconds, shape, deviation, hope, likely)
    return _unmeasured(study, features, widest)


@lru_cache(maxsize=4096)
def _unmeasured(study: Pool, features: tuple[float, ...], widest: int) -> Expected:
    """Return the expected costs of a trial that has not run. Cached, since every plan asks."""
    shape, likely, hope = _shapes(study, _gain(study, features), widest, 1)
    row = _row(features, 1)
    level, deviation = math.exp(study.regression.value(row)), study.regression.deviation(row)
    return Expected(level, shape, deviation, hope, likely)


def _gain(study: Pool, features: tuple[float, ...]) -> int:
    """Return the features' effect on the gain from devices (a number of ``STEP``)."""
    by = study.regression.mean[2::2]
    return round(sum(each * x for each, x in zip(by, features, strict=True)) / STEP)


@lru_cache(maxsize=64)
def prior(widest: int) -> Expected:
    """Return the costs expected of a study without measurements."""
    likely, hope = _cautious_and_optimistic(_prior(widest), known=1)
    return Expected(None, _only(likely, frozenset()), math.inf, hope, likely)


@lru_cache(maxsize=64)
def _prior(widest: int) -> tuple[Estimate, ...]:
    return _shape((), widest)


@lru_cache(maxsize=1024)
def _common(study: Pool, gain: int) -> tuple[Estimate, ...]:
    """Return the study's shape for trials whose gain from devices is ``gain`` steps of ``STEP``."""
    estimates = []
    for each in study.shape:
        log = math.log(each.place.width)
        deviation = math.hypot(
            each.deviation, TILT_DEVIATION * log, SMOOTH_DEVIATION if log else 0.0
        )
        estimates.append(
            Estimate(each.place, each.seconds * math.exp(STEP * gain * log), deviation)
        )
    return tuple(estimates)


@lru_cache(maxsize=1024)
def _shapes(study: Pool, gain: int, widest: int, known: int) -> tuple[Shape, Shape, Shape]:
    """Return ``shape``, ``likely`` and ``hope`` (``Expected``) of a trial measured at one width.

    ``known`` is that width, or 1 if the trial was not measured.
    """
    likely, hope = _cautious_and_optimistic(_common(study, gain)[:widest], known)
    return _only(likely, study.measured | {known}), likely, hope


def _only(shape: Shape, measured: AbstractSet[int]) -> Shape:
    """Return ``shape`` without gains that are not sure.

    A gain is sure at a ``measured`` width if it exceeds the noise of measurements. At any other
    width the curve may jump.
    """
    gains: list[tuple[int, float]] = []
    best = math.inf
    for width, factor in shape:
        if width == 1 or (width in measured and factor <= SURE_GAIN * best):
            best = factor
        gains.append((width, max(factor, best)))
    return tuple(gains)


def _cautious_and_optimistic(common: Sequence[Estimate], known: int) -> tuple[Shape, Shape]:
    """Return the cautious and the optimistic shape. Widths 1 and ``known`` are the same in both."""
    shape, hope = (
        tuple(
            (
                each.place.width,
                each.seconds if each.place.width in (1, known) else each.high(deviations),
            )
            for each in common
        )
        for deviations in (CAUTION, -OPTIMISM)
    )
    return shape, hope


@lru_cache(maxsize=4096)
def _own(
    study: Pool, features: tuple[float, ...], points: tuple[tuple[int, float], ...], widest: int
) -> Expected:
    """Return the costs measured at ``points``, and those of other widths estimated from them."""
    widths = np.arange(1, max(widest, *(width for width, _ in points)) + 1)
    logs = np.log(widths)
    rows = [_row(features, int(width)) for width in widths]
    common = study.shape[: len(widths)]
    means = np.log([each.seconds for each in common]) + [
        study.regression.value(row) for row in rows
    ]
    measured_at = np.array([width - 1 for width, _ in points])
    measured = np.log([seconds for _, seconds in points])
    noise = study.regression.noise
    cross_covariance = _covariance(logs, logs[measured_at], noise)
    weights = np.linalg.solve(
        cross_covariance[measured_at] + NOISE**2 * np.eye(len(measured_at)), cross_covariance.T
    ).T
    estimated = means + weights @ (measured - means[measured_at])
    prior = noise**2 + (TILT_DEVIATION * logs) ** 2 + SMOOTH_DEVIATION**2
    deviations = np.sqrt(np.maximum(0.0, prior - np.sum(weights * cross_covariance, axis=1)))
    estimated[measured_at], deviations[measured_at] = measured, 0.0
    level = round(float(estimated[0]), DIGITS)
    uncertainty = np.where(widths > 1, deviations, 0.0)
    likely = _rounded(np.exp(estimated - level + CAUTION * uncertainty)[:widest])
    return Expected(
        math.exp(level),
        _only(likely, _reachable(dict(points), study.measured)),
        math.hypot(NOISE, float(deviations[0])),
        _rounded(np.exp(estimated - level - OPTIMISM * uncertainty)[:widest]),
        likely,
    )


def _reachable(points: Points, measured: AbstractSet[int]) -> AbstractSet[int]:
    """Return the trial's widths, and those of ``measured`` up to which its own curve falls."""
    widths = set(points)
    for width in measured - widths:
        narrower = [at for at in points if at < width]
        if not narrower or points[max(narrower)] == min(points[at] for at in narrower):
            widths.add(width)
    return widths


def _rounded(factors: np.ndarray) -> Shape:
    return tuple((width, round(float(each), DIGITS)) for width, each in enumerate(factors, start=1))


def _covariance(some: np.ndarray, others: np.ndarray, noise: float) -> np.ndarray:
    """Return the covariance of a trial's own part between two arrays of logarithms of widths."""
    distances = (some[:, None] - others[None, :]) / REACH
    tilts = TILT_DEVIATION**2 * some[:, None] * others[None, :]
    covariance: np.ndarray = noise**2 + tilts + SMOOTH_DEVIATION**2 * np.exp(-0.5 * distances**2)
    return covariance


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
