"""Checks the amounts that a study is given: its weight, its priority, the weight of energy.

They are checked alike in script, command and scheduler.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ...base.errors import UsageError
from ..common.validation import finite, whole

if TYPE_CHECKING:
    from ...profiling.devices.device import Device

#: The range of weights. Beyond it a study gets almost everything or nothing, as priorities do.
LOWEST, HIGHEST = 1e-3, 1e3
#: Priorities range from ``-MAX_PRIORITY`` to ``MAX_PRIORITY``.
MAX_PRIORITY = 1000

ENERGY_FIELD = "system.energy_weight"
ENERGY_ALLOWED = "a weight of energy, 0 (time alone) to 1 (energy alone)"


def check_weight(value: Any, field: str = "weight") -> float:
    """``value`` as a weight; UsageError if it is not a number in the range."""
    return finite(field, value, f"a number from {LOWEST:g} to {HIGHEST:g}", LOWEST, HIGHEST)


def check_priority(value: Any, field: str = "priority") -> int:
    """``value`` as a priority; UsageError if it is not a whole number in the range."""
    return whole(field, value, -MAX_PRIORITY, MAX_PRIORITY)


def check_metered(weight: float, devices: Iterable[Device]) -> None:
    """Raise UsageError, with the reason, if none of ``devices`` measures energy for ``weight``.

    Without any device nothing is known yet, and nothing is refused.
    """
    reasons = {device.unmetered: device.name for device in devices}
    if weight and reasons and "" not in reasons:
        why = "; ".join(f"{name}: {reason}" for reason, name in reasons.items())
        allowed = f"0: energy is not measured here ({why})"
        raise UsageError.refuse(ENERGY_FIELD, weight, allowed)
