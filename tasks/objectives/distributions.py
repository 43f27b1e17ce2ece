"""Distributions as texts, for choices of any kind.

Optuna's JSON has choices of None, bool, int, float and str. A tuple, and a choice that JSON cannot
hold (a class, a function), have forms of their own here. A choice that cannot be rebuilt from a
text becomes an ``OpaqueChoice``, which equals the choice that it stands for.
"""

from __future__ import annotations

import json
import warnings
from functools import lru_cache
from math import isfinite
from typing import Any

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    distribution_to_json,
    json_to_distribution,
)

_TUPLE, _OPAQUE = "__tuple__", "__opaque__"


class OpaqueChoice:
    """Stands for a choice of another process that no text can hold. It equals that choice."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text

    def __eq__(self, other: object) -> bool:
        return self.text == (other.text if isinstance(other, OpaqueChoice) else described(other))

    def __hash__(self) -> int:
        return hash(self.text)


def described(value: object) -> str:
    """Return a text that is the same for the same choice in every process."""
    name = getattr(value, "__qualname__", None)
    if name is not None:
        return f"{getattr(value, '__module__', '')}.{name}"
    text = repr(value)
    return type(value).__qualname__ if " at 0x" in text else text


def to_text(distribution: BaseDistribution) -> str:
    """Return ``distribution`` as JSON text: Optuna's own text if its choices allow that."""
    if not isinstance(distribution, CategoricalDistribution):
        return distribution_to_json(distribution)
    choices = [_plain(choice) for choice in distribution.choices]
    return json.dumps({"name": "CategoricalDistribution", "attributes": {"choices": choices}})


@lru_cache(maxsize=4096)
def from_text(text: str) -> BaseDistribution:
    """Return the distribution in ``text``. Raises ``ValueError`` if the text holds none."""
    if _TUPLE not in text and _OPAQUE not in text:
        return json_to_distribution(text)
    choices = json.loads(text)["attributes"]["choices"]
    return categorical([_rebuilt(choice) for choice in choices])


def categorical(choices: list[Any]) -> CategoricalDistribution:
    """Return a categorical distribution, without Optuna's warning for choices that are no scalars.

    The warning is about its own storages, which cannot hold them.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return CategoricalDistribution(choices)


def scalar_of(value: object) -> str | int | float | bool | None:
    """Return ``value``, or a text that shows it if it is no scalar of JSON."""
    if isinstance(value, float) and not isfinite(value):
        return repr(value)
    return value if isinstance(value, str | int | float | bool | None) else described(value)


def _plain(choice: Any) -> Any:
    if isinstance(choice, str | int | float | bool | None):
        return choice
    if isinstance(choice, tuple):
        return {_TUPLE: [_plain(each) for each in choice]}
    if isinstance(choice, list):
        return [_plain(each) for each in choice]
    return {_OPAQUE: described(choice)}


def _rebuilt(choice: Any) -> Any:
    if isinstance(choice, list):
        return [_rebuilt(each) for each in choice]
    if isinstance(choice, dict) and _TUPLE in choice:
        return tuple(_rebuilt(each) for each in choice[_TUPLE])
    if isinstance(choice, dict) and _OPAQUE in choice:
        return OpaqueChoice(choice[_OPAQUE])
    return choice
