"""Quasi-random configurations: points of a Sobol sequence, which fill a space evenly.

Point k of a study depends only on (study seed, k). So trial number k gets this point however the
asks were grouped. The sequence is scrambled (Owen 1998), so its first points are as good as later
points. Optuna's ``QMCSampler``, in contrast, counts its points in a storage.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from ....scheduler.model.study import Scalar

#: The number of points that are generated at once. A Sobol sequence requires a power of two.
_BLOCK = 64


def quasi_random(
    dists: Mapping[str, BaseDistribution], seed: int, number: int
) -> dict[str, Scalar]:
    """Return the configuration of trial ``number`` for a study with the seed ``seed``."""
    names = sorted(dists)  # a name's coordinate does not depend on the order of the space
    point = _block(len(names), seed, number // _BLOCK)[number % _BLOCK]
    sampled = {name: at(dists[name], float(u)) for name, u in zip(names, point, strict=True)}
    return {name: sampled[name] for name in dists}


@lru_cache(maxsize=16)
def _block(dimensions: int, seed: int, block: int) -> Any:
    from scipy.stats import qmc

    sequence = qmc.Sobol(max(1, dimensions), rng=seed)
    if block:
        sequence.fast_forward(block * _BLOCK)
    return sequence.random(_BLOCK)[:, :dimensions]


def at(dist: BaseDistribution, u: float) -> Scalar:
    """Return the value of ``dist`` at the quantile ``u``, which is in [0, 1)."""
    if isinstance(dist, CategoricalDistribution):
        return dist.choices[int(u * len(dist.choices))]
    assert isinstance(dist, FloatDistribution | IntDistribution)
    low, high = float(dist.low), float(dist.high)
    step = dist.step
    if step is not None:  # every value gets the same share of [0, 1)
        low, high = low - step / 2, high + step / 2
    if dist.log:
        value = math.exp(math.log(low) + u * (math.log(high) - math.log(low)))
    else:
        value = low + u * (high - low)
    if step is not None:
        value = dist.low + step * round((value - dist.low) / step)
    value = min(max(value, dist.low), dist.high)
    return int(value) if isinstance(dist, IntDistribution) else float(value)
