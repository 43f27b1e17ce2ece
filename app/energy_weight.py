"""What system parameters are chosen by: time or energy; refused where no energy is measured."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..profiling.errors import UsageError
from .numeric import finite

if TYPE_CHECKING:
    from ..profiling.devices import Device

#: By name, as weights.
NAMED = {"time": 0.0, "energy": 1.0}
FIELD = "system_objective"
ALLOWED = "time, energy, or a weight of energy from 0 to 1"


def energy_weight(objective: object, system: str, probing: str) -> float:
    """The weight of energy (0 to 1) that ``objective`` means. Raises UsageError."""
    named = NAMED.get(objective) if isinstance(objective, str) else None
    weight = finite(FIELD, objective, ALLOWED) if named is None else named
    if not 0 <= weight <= 1:
        raise UsageError.refuse(FIELD, objective, ALLOWED)
    if weight and system == "off":
        raise UsageError.refuse(FIELD, objective, 'time where system="off": nothing is chosen')
    if weight and probing == "grid":
        raise UsageError.refuse(FIELD, objective, 'time where probing="grid", the paper\'s')
    return weight


def in_words(weight: float) -> object:
    """As the user may have written it."""
    return next((name for name, each in NAMED.items() if each == weight), weight)


def check_metered(weight: float, devices: Iterable[Device]) -> None:
    """Refuse a ``weight`` of energy where it is measured on none of ``devices``, and say why.

    Where there is no device yet, nothing is known yet. Raises UsageError.
    """
    reasons = {device.unmetered: device.name for device in devices}
    if weight and reasons and "" not in reasons:
        why = "; ".join(f"{name}: {reason}" for reason, name in reasons.items())
        allowed = f"time: energy is not measured here ({why})"
        raise UsageError.refuse(FIELD, in_words(weight), allowed)
