"""Intervals of means of few measurements."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from statistics import stdev

from scipy.stats import t as student

CONFIDENCE = 0.95


def half_interval(values: Sequence[float]) -> float:
    """Half of the 95 % interval of the mean of ``values``, two or more, by Student's t.

    >>> round(half_interval([1.0, 2.0, 3.0]), 2)
    2.48
    """
    found = student.ppf((1 + CONFIDENCE) / 2, len(values) - 1) * stdev(values) / sqrt(len(values))
    return float(found)
