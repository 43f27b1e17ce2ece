"""Derive a forked trial's configuration from its source trial's: the ``explore`` step of PBT.

Jaderberg et al. 2017, section 4.1.1: a hyperparameter is multiplied by 0.8 or 1.2, or it is drawn
again from its range with some probability. Each hyperparameter is changed independently, as a pure
function of the study's seed and the trial's number. So a scheduler that starts after a crash
derives the same configuration.

A number stays in its range and on its steps; a number with steps moves by at least one step. If all
choices of a categorical parameter are numbers in rising order, the next choice up or down is taken.
Other choices have no order and change only by a new draw. So does a zero, which no factor changes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ....base.pieces import later_piece
from ...spec.space import Categorical, Float, Int, Parameter, parameter

if TYPE_CHECKING:
    from ....scheduler.model.study import Params, Scalar, StudySpec

FACTORS = (0.8, 1.2)


def explored(spec: StudySpec, number: int, source: Params, sampled: Mapping[str, Scalar]) -> Params:
    """Return the configuration of trial ``number``, derived from the configuration ``source``.

    ``sampled`` is a random configuration of the space. The name of a hyperparameter that changes by
    ``Steps`` stands for all its pieces.
    """
    names, values = spec.strategy.explore, dict(source)
    return tuple(
        (
            name,
            _changed(spec, parameter(text), f"{number} {name}", values[name], sampled[name])
            if names is None or name in names or (later_piece(name, values) or name)[0] in names
            else values[name],
        )
        for name, text in spec.space or ()
    )


def _changed(spec: StudySpec, given: Parameter, key: str, value: Scalar, sampled: Scalar) -> Scalar:
    digest = hashlib.sha256(f"{spec.seed} explore {key}".encode()).digest()
    is_resampled = int.from_bytes(digest[:8], "big") < spec.strategy.resample * 2**64
    up = digest[8] % 2 == 1
    if isinstance(given, Categorical):
        return sampled if is_resampled else _adjacent(given.choices, value, up=up)
    if is_resampled or value == 0:
        return sampled
    return _scaled(given, float(value), FACTORS[up])  # type: ignore[arg-type]  # a number's range


def _adjacent(choices: tuple[Scalar, ...], value: Scalar, *, up: bool) -> Scalar:
    numbers = [c for c in choices if isinstance(c, (int, float)) and not isinstance(c, bool)]
    if len(numbers) < len(choices) or numbers != sorted(numbers):
        return value
    index = choices.index(value) + (1 if up else -1)
    return choices[min(max(index, 0), len(choices) - 1)]


def _scaled(given: Float | Int, value: float, factor: float) -> float | int:
    """Return ``value`` times ``factor``, within the range and rounded to the steps, if any."""
    new = value * factor
    if given.step is not None:
        steps = round((new - value) / given.step) or (1 if new > value else -1)
        # Counted from the low end, as the steps are: 0.1 + 2 * 0.1 is not 0.3 in binary.
        new = given.low + (round((value - given.low) / given.step) + steps) * given.step
        new = round(new, 12)
    new = min(max(new, given.low), given.high)
    return int(new) if isinstance(given, Int) else new
