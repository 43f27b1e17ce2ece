"""Checks a study's weight and priority: the same in script, command and scheduler."""

from __future__ import annotations

from typing import Any

from ...profiling.base.errors import UsageError
from ..common.validation import finite, whole

#: The range of weights. Beyond it a study gets almost everything or nothing, as priorities do.
LOWEST, HIGHEST = 1e-3, 1e3
#: Priorities range from ``-MAX_PRIORITY`` to ``MAX_PRIORITY``.
MAX_PRIORITY = 1000


def check_weight(value: Any, field: str = "weight") -> float:
    """``value`` as a weight; UsageError if it is not a number in the range."""
    allowed = f"a number from {LOWEST:g} to {HIGHEST:g}"
    number = finite(field, value, allowed)
    if not LOWEST <= number <= HIGHEST:
        raise UsageError.refuse(field, value, allowed)
    return number


def check_priority(value: Any, field: str = "priority") -> int:
    """``value`` as a priority; UsageError if it is not a whole number in the range."""
    number = whole(field, value, low=-MAX_PRIORITY)
    if number > MAX_PRIORITY:
        raise UsageError.refuse(field, value, f"a whole number, {-MAX_PRIORITY} to {MAX_PRIORITY}")
    return number
