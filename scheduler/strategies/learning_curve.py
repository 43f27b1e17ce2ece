"""Extrapolation of learning curves by power laws.

Theory of operation. Learning curves are well described by ``a - b * epoch**-c``. (Domhan et al.
2015 compare eleven families; most later work keeps power laws of this form.) For each exponent
``c`` of a grid, ``a`` and ``b`` follow by linear least squares, and so does the distribution of the
value at a later epoch. Student's t would be exact for a known ``c``; here it is a normal
distribution whose variance covers the noise and the uncertainty of the fit. Exponents are averaged
with weights ``exp(-BIC / 2)``, that is ``residuals**(-n / 2)``. Falling laws (``b`` < 0) are fitted
as well, for curves that overfit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

#: The exponents ``c`` of the power laws that are averaged.
EXPONENTS = (0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0)
#: The fewest points from which the noise around a law with three parameters can be estimated.
MIN_POINTS = 4


def probability_above(curve: Mapping[int, float], epoch: int, threshold: float) -> float | None:
    """Return the probability that ``curve`` (score by epoch) exceeds ``threshold`` at ``epoch``.

    Return None if the curve has fewer than ``MIN_POINTS`` points.
    """
    if len(curve) < MIN_POINTS:
        return None
    epochs, scores = list(curve), list(curve.values())
    score_range = max(scores) - min(scores)
    # Residuals below this are taken for noise; it also keeps a perfect fit from being certain.
    floor = (1e-3 * score_range) ** 2 + 1e-24
    laws = [_law(epochs, scores, c, epoch, floor) for c in EXPONENTS]
    least = min(residual for residual, _, _ in laws)
    weights: list[float] = [(residual / least) ** (-len(scores) / 2) for residual, _, _ in laws]
    above = [0.5 * math.erfc((threshold - mean) / (math.sqrt(2) * sd)) for _, mean, sd in laws]
    return sum(w * p for w, p in zip(weights, above, strict=True)) / sum(weights)


def _law(
    epochs: list[int], scores: list[float], c: float, target: int, floor: float
) -> tuple[float, float, float]:
    """Fit the power law with exponent ``c``, and predict its value at epoch ``target``.

    Return the mean squared residual of the fit, and the mean and the standard deviation of the
    predicted value.
    """
    n = len(scores)
    x = [-(epoch**-c) for epoch in epochs]
    mean_x, mean_y = sum(x) / n, sum(scores) / n
    sxx = sum((each - mean_x) ** 2 for each in x)
    sxy = sum((each - mean_x) * (y - mean_y) for each, y in zip(x, scores, strict=True))
    b = sxy / sxx
    squares = sum(
        (y - mean_y - b * (each - mean_x)) ** 2 for each, y in zip(x, scores, strict=True)
    )
    x_target = -(target**-c)
    noise = squares / (n - 2) + floor
    variance = noise * (1 + 1 / n + (x_target - mean_x) ** 2 / sxx)
    return squares / n + floor, mean_y + b * (x_target - mean_x), math.sqrt(variance)
