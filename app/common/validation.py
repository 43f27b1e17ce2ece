"""Check numbers that users give. An error names the field."""

from __future__ import annotations

import math
from typing import Any

from ...profiling.base.errors import UsageError

#: The largest whole number that every ledger can store.
MAX_INT = 2**63 - 1


def whole(field: str, value: Any, low: int | None = None) -> int:
    """``value`` as a whole number of at least ``low``. Raises UsageError naming ``field``."""
    allowed = "a whole number" if low is None else f"a whole number >= {low}"
    if isinstance(value, bool) or not hasattr(type(value), "__index__"):
        raise UsageError.refuse(field, value, allowed)
    number = int(value)
    if low is not None and number < low:
        raise UsageError.refuse(field, value, allowed)
    if abs(number) > MAX_INT:
        raise UsageError.refuse(field, value, f"{allowed}, at most {MAX_INT}")
    return number


def finite(field: str, value: Any, allowed: str = "a finite number") -> float:
    """``value`` (also NumPy's or torch's) as a finite float. Raises UsageError naming ``field``."""
    try:
        number = math.nan if isinstance(value, (bool, str)) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise UsageError.refuse(field, value, allowed)
    return number


def seconds(field: str, value: Any) -> float:
    """``value`` as seconds above 0. Raises UsageError naming ``field``."""
    allowed = "seconds above 0, or None"
    number = finite(field, value, allowed)
    if number <= 0:
        raise UsageError.refuse(field, value, allowed)
    return number
