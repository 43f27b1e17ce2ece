"""Configurations as numbers, by which the cost model distinguishes the trials of a study."""

from __future__ import annotations

import json
import math
from functools import lru_cache

from ..model.study import Params, Scalar, StudySpec

#: The most numbers of a configuration. More numbers tell little about costs and take long.
MAX_FEATURES = 24

Space = tuple[tuple[str, str], ...]


@lru_cache(maxsize=32768)
def _features(space: Space, params: Params, without: tuple[str, ...]) -> tuple[float, ...]:
    values = dict(params)
    features: list[float] = []
    for name, text in space:
        if name not in without:
            features += _numbers(_parsed(text), values.get(name), present=name in values)
    return tuple(features[:MAX_FEATURES])


def features_of(
    spec: StudySpec, params: Params, without: tuple[str, ...] = ()
) -> tuple[float, ...]:
    """Return the numbers from -1 to 1 that describe a trial; none if the study has no space.

    All trials of a study have equally many numbers, at most ``MAX_FEATURES``. A numeric parameter
    gives its position in its range, on a logarithmic scale if the distribution has one. A
    categorical parameter gives 0 or 1 for each possible value but the first. Numbers of an absent
    parameter are 0. Parameters named in ``without`` give no number.
    """
    return _features(spec.space, params, without) if spec.space else ()


@lru_cache(maxsize=1024)
def _parsed(text: str) -> tuple[tuple[Scalar, ...], float, float, bool]:
    """Return the choices (empty if numeric), low, high and the ``log`` flag of a distribution."""
    attributes = json.loads(text)["attributes"]
    if "choices" in attributes:
        return tuple(attributes["choices"]), 0.0, 0.0, False
    return (), attributes["low"], attributes["high"], attributes.get("log", False)


def _numbers(
    distribution: tuple[tuple[Scalar, ...], float, float, bool], value: Scalar, *, present: bool
) -> list[float]:
    choices, low, high, log = distribution
    if choices:
        return [float(present and value == choice) for choice in choices[1:]]
    if not present or high <= low or not isinstance(value, int | float):
        return [0.0]
    if log:
        low, high, value = math.log(low), math.log(high), math.log(max(value, 1e-300))
    return [max(-1.0, min(1.0, 2.0 * (value - low) / (high - low) - 1.0))]
