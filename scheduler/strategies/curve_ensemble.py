"""A model of all learning curves of a study, which predicts each curve from the first epoch on.

Theory of operation. The score of a trial after epoch ``t`` is taken to be ``a + g u(t)`` with
noise. The *shape* ``u`` rises from 0 at the first epoch to 1 at the last one. It is one of a fixed
ensemble: power laws, exponentials, logistic shapes that start slowly, and some that fall again, for
curves that overfit. ``g`` is the *gain* of the whole training. It may be negative.

Before a trial is trained, ``g`` has a normal distribution around a line over the first score: a
trial that begins low mostly has more to gain. For each shape the posterior of ``a`` and ``g`` is
that of a linear regression with two unknowns, in closed form, and so is the evidence, which weighs
the shapes (Swersky, Snoek & Adams 2014, "Freeze-Thaw Bayesian Optimization", has the idea with
Gaussian processes; Domhan et al. 2015 average parametric curves). With one epoch or none, only the
prior is known. It is learned from the study's other trials by a few steps of
expectation-maximisation (``learned``): the line and the spread of gains, the weights of the shapes,
and the noise. So a prediction after one to three points is as wide as the gains of other trials.

All numbers are plain floats, and sums run in the order of the trials: equal curves give equal
predictions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import mul
from statistics import median
from typing import NamedTuple

#: The fewest trials with two epochs or more from which a prior is learned.
LEAST = 2
#: The most trials from which the prior learns: those that were trained longest.
MOST = 256
#: The number of steps of expectation-maximisation.
STEPS = 4
#: The distance below the median at which scores are clipped, in units of the distance from the
#: median to the best score. Beyond this distance, the size of an exploded loss means nothing.
DEPTH = 4.0
#: The error of a predicted change beyond the ensemble's own uncertainty, as a part of the change.
MISFIT = 0.1
#: The deviation of curves from all shapes, as a part of their rise so far, for each growth of their
#: length by the factor e.
BEND = 0.05
#: The noise as a part of the spread of all scores, before there are curves to measure it.
FINEST = 0.005
#: The first guess of ``Prior.unlike``, and the number of scores that the guess weighs.
UNLIKE, GUESSED = 0.06, 10
#: The least value of ``Prior.unlike``.
LIKEST = 0.005
#: Bounds of the difference between the best and the worst score: its fourth power must not
#: overflow.
SMALLEST, LARGEST = 1e-60, 1e60
#: Each time constant of the ensemble divided by the one before.
RATIO = 1.8
#: The number of trials that the first guess of the prior weighs.
WEIGHT = 2.0


class Forecast(NamedTuple):
    """The score that a trial is expected to have after ``epoch``, and its standard deviation."""

    epoch: int
    mean: float
    deviation: float


@dataclass(frozen=True, slots=True)
class Prior:
    """The distribution of learning curves in a study, learned from the curves so far."""

    #: The least score: lower scores are raised to this value before a curve is fitted.
    lowest: float
    #: The mean of the first scores.
    first: float
    #: The gain of a trial with the mean first score, and the change of the gain with the first
    #: score.
    gain: float
    slope: float
    #: The standard deviation of gains around that line.
    deviation: float
    #: The standard deviation of a score around its curve.
    noise: float
    #: The deviation of a curve from all shapes, as a part of its rise so far. It acts as noise.
    unlike: float
    #: The logarithm of each shape's probability.
    shapes: tuple[float, ...]


class _Table(NamedTuple):
    """A shape of the ensemble, with sums that speed up the regression.

    ``values[n]`` is the value of the shape after epoch n. ``sums[n]`` adds up epoch times value for
    epochs 1 to n, and ``squares[n]`` adds up epoch times squared value.
    """

    values: tuple[float, ...]
    sums: tuple[float, ...]
    squares: tuple[float, ...]


class _Fit(NamedTuple):
    """The posterior of a curve's offset ``a`` and gain ``g``, if the curve has one given shape.

    ``weight`` is the posterior probability of the shape.
    """

    weight: float
    offset: float
    gain: float
    offset_variance: float
    covariance: float
    gain_variance: float
    #: The weighted sum of the squared residuals.
    residual: float


@lru_cache(maxsize=64)
def tables(last: int) -> tuple[_Table, ...]:
    """Return all shapes of the ensemble for curves that end at epoch ``last``."""
    span = max(1, last - 1)
    rising = [[1.0 - (t + 1.0) ** -power for t in range(last)] for power in (0.3, 0.7, 1.5)]
    time = 0.8
    while time < 2.0 * span:
        rising.append([1.0 - math.exp(-t / time) for t in range(last)])
        if time <= span / 2.0:
            rising.append([t**2.5 / (t**2.5 + (1.5 * time) ** 2.5) for t in range(last)])
        time *= RATIO
    rising = [[each / (shape[-1] or 1.0) for each in shape] for shape in rising]
    for peak in (span / 8.0, span / 3.0):
        rising.append([t / peak * math.exp(1.0 - t / peak) for t in range(last)])
    ensemble = []
    for shape in rising:
        values, sums, squares = [0.0], [0.0], [0.0]
        for epoch, each in enumerate(shape, start=1):
            values.append(each)
            sums.append(sums[-1] + epoch * each)
            squares.append(squares[-1] + epoch * each * each)
        ensemble.append(_Table(tuple(values), tuple(sums), tuple(squares)))
    return tuple(ensemble)


def learned(curves: Mapping[str, Sequence[float]], last: int) -> Prior | None:
    """Return the prior that is learned from ``curves``.

    ``curves`` maps each trial to its scores from epoch 1 on. All scores are finite, and no curve
    has more than ``last`` epochs. Return None if fewer than ``LEAST`` curves have two epochs, or if
    the scores lie too close together or too far apart to compute with.
    """
    long = [curve for curve in curves.values() if len(curve) > 1]
    if len(long) < LEAST:
        return None
    ends = [curve[-1] for curve in curves.values()]
    best, middle = max(max(curve) for curve in curves.values()), median(ends)
    lowest = middle - DEPTH * (best - middle)
    firsts = [max(lowest, curve[0]) for curve in curves.values()]
    first = sum(firsts) / len(firsts)
    clipped = [[max(lowest, score) for score in curve] for curve in long]
    clipped = sorted(clipped, key=len, reverse=True)[:MOST]
    extent = max(max(curve) for curve in clipped) - min(min(curve) for curve in clipped)
    if extent < SMALLEST or best - min(*firsts, *map(min, clipped)) > LARGEST:
        return None
    noise = _noise(clipped, extent)
    gain = max(max(curve) - curve[0] for curve in clipped)
    ensemble = tables(last)
    even = math.log(1.0 / len(ensemble))
    prior = Prior(
        lowest, first, gain, -0.5, max(gain, 0.1 * extent), noise, UNLIKE, (even,) * len(ensemble)
    )
    for _ in range(STEPS):
        prior = _improved(prior, clipped, ensemble, 0.02 * extent)
    return prior


def _noise(curves: Sequence[Sequence[float]], extent: float) -> float:
    """Return the standard deviation of the noise, estimated from the third differences of curves.

    ``extent`` is the difference between the highest and the lowest score.
    """
    squares, n = (FINEST * extent) ** 2, 1
    for curve in curves:
        square, more = _third_differences(curve)
        squares, n = squares + square, n + more
    return max(1e-9 * extent, math.sqrt(squares / n))


def _third_differences(curve: Sequence[float]) -> tuple[float, int]:
    """Return the scaled sum of a curve's squared third differences, and their number.

    The third differences of a smooth curve are near 0, so larger differences come from noise. The
    sum is divided by 20, the sum of the squared weights (1, 3, 3, 1) of a third difference.
    """
    four = zip(curve, curve[1:], curve[2:], curve[3:], strict=False)
    return sum((a - 3.0 * b + 3.0 * c - d) ** 2 for a, b, c, d in four) / 20.0, max(
        0, len(curve) - 3
    )


def _improved(
    prior: Prior, curves: Sequence[Sequence[float]], ensemble: Sequence[_Table], least: float
) -> Prior:
    """Return the prior after one more step of expectation-maximisation.

    ``least`` is the lower bound for the standard deviation of gains.
    """
    rows = []
    share = [1.0] * len(ensemble)
    unlike, scores = UNLIKE**2 * GUESSED, float(GUESSED)
    for curve in curves:
        fits = _fits(curve, prior, ensemble)
        mean = sum(fit.weight * fit.gain for fit in fits)
        square = sum(fit.weight * (fit.gain_variance + fit.gain**2) for fit in fits)
        variance = square - mean * mean
        certainty = max(0.05, 1.0 - variance / prior.deviation**2)
        rows.append((certainty, curve[0] - prior.first, mean, variance))
        rise = max(curve) - min(curve)
        if len(curve) > 3 and rise > 1e-9 * least:  # the square of less may be 0
            free = 0.5 * (len(curve) + 1) - 1.5
            unexplained = sum(fit.weight * fit.residual for fit in fits)
            unexplained -= free * _own_noise(curve, prior.noise) ** 2
            unlike += max(0.0, unexplained) / rise**2
            scores += free
        for index, fit in enumerate(fits):
            share[index] += certainty * fit.weight
    total = sum(share)
    # The line of gains over first scores, with the first guess as WEIGHT trials on it.
    n = sum(row[0] for row in rows) + WEIGHT
    sx = sum(w * x for w, x, _, _ in rows)
    sy = sum(w * y for w, _, y, _ in rows) + WEIGHT * prior.gain
    width = sum(x * x for _, x, _, _ in rows) / len(rows)
    sxx = sum(w * x * x for w, x, _, _ in rows) + WEIGHT * width
    sxy = sum(w * x * y for w, x, y, _ in rows) + WEIGHT * width * prior.slope
    det = n * sxx - sx * sx
    slope = (n * sxy - sx * sy) / det if det > 0.0 else 0.0
    gain = (sy - slope * sx) / n
    squares = WEIGHT * prior.deviation**2
    squares += sum(w * ((y - gain - slope * x) ** 2 + v) for w, x, y, v in rows)
    deviation = max(least, math.sqrt(squares / n))
    shapes = tuple(math.log(each / total) for each in share)
    unlike = max(LIKEST, math.sqrt(unlike / scores))
    return Prior(prior.lowest, prior.first, gain, slope, deviation, prior.noise, unlike, shapes)


def _fits(curve: Sequence[float], prior: Prior, ensemble: Sequence[_Table]) -> list[_Fit]:
    """Return the posterior of a curve under each shape. The weights of the shapes sum to 1."""
    n, begin = len(curve), curve[0]
    z = [score - begin for score in curve]
    variance = _own_noise(curve, prior.noise) ** 2 + (prior.unlike * (max(z) - min(z))) ** 2
    expected = prior.gain + prior.slope * (begin - prior.first)
    precision, of_gain = 1.0 / variance, 1.0 / prior.deviation**2
    # The newest score has weight 1, the others theirs by their epochs: curves bend.
    weight = precision / n
    weighted = [epoch * each * weight for epoch, each in enumerate(z, start=1)]
    weights_sum = 0.5 * (n + 1) * precision
    a11 = 0.01 * precision + weights_sum
    b1, total = sum(weighted), sum(map(mul, weighted, z))
    fits, logs = [], []
    for table, log in zip(ensemble, prior.shapes, strict=True):
        a12 = table.sums[n] * weight
        a22 = of_gain + table.squares[n] * weight
        product = sum(map(mul, table.values[1 : n + 1], weighted))
        b2 = expected * of_gain + product
        det = a11 * a22 - a12 * a12
        offset, gain = (a22 * b1 - a12 * b2) / det, (a11 * b2 - a12 * b1) / det
        logs.append(log - 0.5 * (math.log(det) - offset * b1 - gain * b2))
        residual = total - 2.0 * (offset * b1 + gain * product) + offset * offset * weights_sum
        residual += gain * (2.0 * offset * a12 + gain * table.squares[n] * weight)
        fits.append((offset, gain, a22 / det, -a12 / det, a11 / det, residual * variance))
    top = max(logs)
    weights = [math.exp(each - top) for each in logs]
    total = sum(weights)
    return [_Fit(w / total, *fit) for w, fit in zip(weights, fits, strict=True)]


def _own_noise(curve: Sequence[float], common: float) -> float:
    """Return the standard deviation of the noise of one curve.

    ``common`` is the noise of all curves. Its influence falls with the number of points in
    ``curve``.
    """
    squares, n = _third_differences(curve)
    return math.sqrt((squares + 4.0 * common**2) / (n + 4))


@lru_cache(maxsize=1024)
def horizons(epoch: int, last: int) -> tuple[int, ...]:
    """Return the epochs after ``epoch`` for which scores are predicted.

    The distance from ``epoch`` doubles each time. The last item is ``last``.

    >>> horizons(3, 27)
    (4, 5, 7, 11, 19, 27)
    """
    epochs, step = [], 1
    while epoch + step < last:
        epochs.append(epoch + step)
        step *= 2
    return (*epochs, last)


def forecasts(curve: Sequence[float], prior: Prior, last: int) -> list[Forecast]:
    """Return the forecasts of a trial's scores at the epochs of ``horizons``.

    ``curve`` holds the trial's scores so far. The list is empty if the trial has reached its last
    epoch, or if a score is too large to compute with.
    """
    clipped = [max(prior.lowest, score) for score in curve]
    if len(curve) >= last or max(clipped) - prior.lowest > LARGEST:
        return []
    ensemble = tables(last)
    fits = [
        (fit, table.values)
        for fit, table in zip(_fits(clipped, prior, ensemble), ensemble, strict=True)
        if fit.weight > 1e-4
    ]
    total = sum(fit.weight for fit, _ in fits)
    rise = (max(clipped) - min(clipped)) ** 2
    expected = []
    for epoch in horizons(len(curve), last):
        mean = square = 0.0
        for fit, values in fits:
            u = values[epoch]
            value = fit.offset + fit.gain * u
            own = fit.offset_variance + u * (2.0 * fit.covariance + u * fit.gain_variance)
            mean += fit.weight * value
            square += fit.weight * (own + value * value)
        mean, square = mean / total, square / total
        misfit = MISFIT * (clipped[0] + mean - clipped[-1])
        variance = max(0.0, square - mean * mean) + misfit * misfit
        variance += BEND**2 * rise * math.log(epoch / len(curve))
        expected.append(Forecast(epoch, clipped[0] + mean, math.sqrt(variance)))
    return expected
