"""Check the amounts that a study is given: its weight, its priority and its weight of energy.

The client, the command line and the scheduler use the same checks.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ...base.errors import UsageError
from ..common.validation import finite, whole

if TYPE_CHECKING:
    from ...profiling.devices.device import Device

#: The range of weights. Beyond this range a study would get almost all devices or almost none. Use
#: priorities for such an effect.
LOWEST, HIGHEST = 1e-3, 1e3
#: Priorities range from ``-MAX_PRIORITY`` to ``MAX_PRIORITY``.
MAX_PRIORITY = 1000

ENERGY_FIELD = "system.energy_weight"
ENERGY_ALLOWED = "a weight of energy, 0 (time alone) to 1 (energy alone)"


def check_weight(value: Any, field: str = "weight") -> float:
    """Return ``value`` as a weight.

    Raises UsageError unless it is a number in the allowed range.
    """
    return finite(field, value, f"a number from {LOWEST:g} to {HIGHEST:g}", LOWEST, HIGHEST)


def check_priority(value: Any, field: str = "priority") -> int:
    """Return ``value`` as a priority.

    Raises UsageError unless it is an int in the allowed range.
    """
    return whole(field, value, -MAX_PRIORITY, MAX_PRIORITY)


def check_metered(weight: float, devices: Iterable[Device]) -> None:
    """Raise UsageError if ``weight`` is above 0 but no device in ``devices`` measures energy.

    The message says why each device does not measure energy. Without devices nothing is refused,
    since nothing is known about energy yet.
    """
    reasons = {device.unmetered: device.name for device in devices}
    if weight and reasons and "" not in reasons:
        why = "; ".join(f"{name}: {reason}" for reason, name in reasons.items())
        allowed = f"0: energy is not measured here ({why})"
        raise UsageError.refuse(ENERGY_FIELD, weight, allowed)
