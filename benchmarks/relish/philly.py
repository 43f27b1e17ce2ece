"""Jobs with the spread of a cluster's running times, which arrive in bursts.

Running times follow quantiles of Microsoft's Philly cluster (Jeon et al., ATC 2019), as Alibaba's
``philly_runtime.csv`` of 83,154 jobs has them (clusterdata, CC BY 4.0). Between two quantiles the
logarithm is interpolated. Below the 10th percentile nothing is known to us, and far above the last
ones a few jobs decide everything, so times are drawn from the 10th percentile to ``top``. Each draw
is scaled to a mean of ``MEAN`` seconds. Arrivals have the bursts of Helios's cluster Venus, as in
``extensions.simulation.generated``: exponential gaps, geometric sizes of 8.2 jobs on average.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from itertools import pairwise
from random import Random
from typing import NamedTuple

from penstock.extensions.simulation.generated import BURST

#: (part of the jobs, seconds).
QUANTILES = (
    (0.10, 61.0),
    (0.25, 131.0),
    (0.50, 1186.0),
    (0.75, 3342.0),
    (0.90, 12859.0),
    (0.95, 49948.0),
)
#: The mean running time after scaling (seconds).
MEAN = 182.0


class QueueJob(NamedTuple):
    """A job of ``seconds`` on one device that arrives at ``arrives`` (seconds)."""

    arrives: float
    seconds: float


def philly_jobs(jobs: int, load: float, top: float, seed: int) -> list[QueueJob]:
    """``jobs`` jobs for one device, in order of arrival.

    ``load`` is mean running time over mean gap between arrivals; ``top`` is the last quantile that
    is drawn.
    """
    rng = Random(f"penstock philly {seed}")
    times = [_quantile(rng.uniform(QUANTILES[0][0], top)) for _ in range(jobs)]
    scale = MEAN * jobs / math.fsum(times)
    arrivals: list[float] = []
    at = 0.0
    while len(arrivals) < jobs:
        size = 1 + int(math.log(1 - rng.random()) / math.log(1 - 1 / BURST))
        arrivals += [at] * size
        at += rng.expovariate(load / (BURST * MEAN))
    return [QueueJob(at, scale * each) for at, each in zip(arrivals, times, strict=False)]


def _quantile(part: float) -> float:
    """The running time (seconds) that ``part`` of the jobs do not exceed."""
    index = bisect_right(QUANTILES, (part, math.inf)) - 1
    if index == len(QUANTILES) - 1:
        return QUANTILES[-1][1]
    (low, shortest), (high, longest) = list(pairwise(QUANTILES))[index]
    inside = (part - low) / (high - low)
    return shortest * (longest / shortest) ** inside
