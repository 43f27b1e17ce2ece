"""A study's weight and priority: checked alike in script, command and scheduler."""

from __future__ import annotations

from typing import Any

from ...profiling.base.errors import UsageError
from ..common.validation import finite, whole

#: Beyond these a study has next to everything or nothing: that is what priorities are for.
LOWEST, HIGHEST = 1e-3, 1e3
#: Priorities are from ``-FURTHEST`` to it.
FURTHEST = 1000


def check_weight(value: Any, field: str = "weight") -> float:
    """A weight; UsageError for what is not a number in its range."""
    allowed = f"a number from {LOWEST:g} to {HIGHEST:g}"
    number = finite(field, value, allowed)
    if not LOWEST <= number <= HIGHEST:
        raise UsageError.refuse(field, value, allowed)
    return number


def check_priority(value: Any, field: str = "priority") -> int:
    """A priority; UsageError for what is not a whole number in its range."""
    number = whole(field, value, low=-FURTHEST)
    if number > FURTHEST:
        raise UsageError.refuse(field, value, f"a whole number, {-FURTHEST} to {FURTHEST}")
    return number
