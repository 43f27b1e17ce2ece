"""Ridge regression: a linear model of a few numbers, with its uncertainty.

It is Bayesian linear regression under a normal prior of mean 0 (Bishop, "Pattern recognition and
machine learning", 2006, section 3.3), with the noise estimated along with it. Results are rounded
to ``DIGITS``, so that a fit on another machine's linear algebra library gives the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

#: Prior standard deviation of the noise, and the number of rows as which it counts.
NOISE = 0.4
NOISE_WEIGHT = 2.0
#: Rounds of estimating coefficients and noise in turn.
ROUNDS = 3
DIGITS = 9


@dataclass(frozen=True, slots=True)
class Regression:
    """Coefficients, their covariance (rows), and the standard deviation of the remaining noise."""

    mean: tuple[float, ...]
    covariance: tuple[tuple[float, ...], ...]
    noise: float

    def value(self, row: Sequence[float]) -> float:
        """Return the expected value for ``row``."""
        return sum(coefficient * other for coefficient, other in zip(self.mean, row, strict=True))

    def deviation(self, row: Sequence[float]) -> float:
        """Return the standard deviation of the value for ``row``, noise included."""
        x = np.array(row)
        return math.sqrt(max(0.0, float(x @ np.array(self.covariance) @ x)) + self.noise**2)


def regress(
    rows: Sequence[Sequence[float]], values: Sequence[float], deviations: Sequence[float]
) -> Regression:
    """Return the regression of ``values`` on ``rows``.

    ``deviations`` are the prior standard deviations of the coefficients.

    >>> regress([(1.0, 0.0), (1.0, 1.0), (1.0, 2.0)] * 9, [1.0, 3.0, 5.0] * 9, (9.0, 9.0)).mean
    (1.000042437, 1.999964783)
    """
    x, y = np.array(rows), np.array(values)
    penalty = np.diag(np.array(deviations) ** -2.0)
    gram, cross = x.T @ x, x.T @ y
    variance = NOISE**2
    for _ in range(ROUNDS):
        covariance = np.linalg.inv(gram / variance + penalty)
        mean = covariance @ cross / variance
        # The degrees of freedom that the coefficients leave estimate the noise (Bishop, 3.5).
        effective_parameters = float(np.sum(covariance * gram)) / variance
        squared_error = float(np.sum((y - x @ mean) ** 2))
        variance = (NOISE_WEIGHT * NOISE**2 + squared_error) / (
            NOISE_WEIGHT + max(0.0, len(y) - effective_parameters)
        )
    return Regression(
        tuple(round(float(each), DIGITS) for each in mean),
        tuple(tuple(round(float(each), DIGITS) for each in row) for row in covariance),
        round(math.sqrt(variance), DIGITS),
    )
