"""Reads what people enter in a form's fields, all of which are texts."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from ...profiling.base.errors import UsageError
from .space import Categorical, Parameter

#: The fields of a form, by name.
Fields = Mapping[str, str]


def value(name: str, text: str, given: Parameter) -> Any:
    """Return the value of a parameter: a number, or the choice at an index."""
    if isinstance(given, Categorical):
        known = [str(index) for index in range(len(given.choices))]
        if text not in known:
            raise UsageError.refuse(f"params[{name!r}]", text, f"one of {list(given.choices)}")
        return given.choices[int(text)]
    if not isinstance(given.low, float):
        with suppress(ValueError):
            return int(text)  # large ones are no floats
    entered = _float(f"params[{name!r}]", text)
    return int(entered) if entered.is_integer() and not isinstance(given.low, float) else entered


def number(fields: Fields, name: str) -> float:
    """Return the number in a field. Raises UsageError where it is none."""
    return _float(name, fields.get(name, ""))


def whole(fields: Fields, name: str) -> int:
    """Return the whole number in a field. Raises UsageError where it is none."""
    entered = number(fields, name)
    if not entered.is_integer():
        raise UsageError.refuse(name, fields.get(name, ""), "a whole number")
    return int(entered)


def _float(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UsageError.refuse(name, text, "a number") from None
