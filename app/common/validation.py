"""Check numbers that users give. An error names the field."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

from ...base.errors import UsageError
from ...base.values import MAX_INT

#: The least float above 0, for ranges that exclude 0.
ABOVE_0 = math.ulp(0.0)


def flag(field: str, value: Any) -> bool:
    """Return ``value``. Raises UsageError naming ``field`` unless it is True or False."""
    if not isinstance(value, bool):
        raise UsageError.refuse(field, value, "True or False")
    return value


def one_of(field: str, value: Any, known: Collection[Any], allowed: str = "") -> Any:
    """Return ``value``. Raises UsageError naming ``field`` unless it is in ``known``."""
    if value not in known:
        raise UsageError.refuse(field, value, allowed or ", ".join(map(str, known)))
    return value


def whole(field: str, value: Any, low: int | None = None, high: int | None = None) -> int:
    """Return ``value`` as an int. None for ``low`` or ``high`` means no limit.

    Raises UsageError, naming ``field``, if ``value`` is no whole number from ``low`` to ``high``.
    """
    allowed = "a whole number" if low is None else f"a whole number >= {low}"
    allowed = allowed if high is None else f"a whole number, {low} to {high}"
    if isinstance(value, bool) or not hasattr(type(value), "__index__"):
        raise UsageError.refuse(field, value, allowed)
    number = int(value)
    if (low is not None and number < low) or (high is not None and number > high):
        raise UsageError.refuse(field, value, allowed)
    if abs(number) > MAX_INT:
        raise UsageError.refuse(field, value, f"{allowed}, at most {MAX_INT}")
    return number


def finite(
    field: str,
    value: Any,
    allowed: str = "a finite number",
    low: float = -math.inf,
    high: float = math.inf,
) -> float:
    """Return ``value`` (also NumPy's or torch's) as a finite float from ``low`` to ``high``.

    Raises UsageError naming ``field``.
    """
    try:
        number = math.nan if isinstance(value, (bool, str)) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number) or not low <= number <= high:
        raise UsageError.refuse(field, value, allowed)
    return number


def seconds(field: str, value: Any) -> float:
    """Return ``value`` as seconds above 0. Raises UsageError naming ``field``."""
    return finite(field, value, "seconds above 0, or None", ABOVE_0)
