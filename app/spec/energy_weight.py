"""Checks the weight of energy in choosing system parameters, and that energy is measured."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ...profiling.base.errors import UsageError
from ...profiling.knobs.racing import PROBING
from ..common.validation import finite

if TYPE_CHECKING:
    from ...profiling.devices.device import Device

FIELD = "system.energy_weight"
ALLOWED = "a weight of energy, 0 (time alone) to 1 (energy alone)"


def check_energy_weight(weight: object, mode: str, probing: str) -> float:
    """``weight``, checked; UsageError where no choice could depend on it."""
    found = finite(FIELD, weight, ALLOWED)
    if not 0 <= found <= 1:
        raise UsageError.refuse(FIELD, weight, ALLOWED)
    if found and mode == "off":
        raise UsageError.refuse(FIELD, weight, '0 with mode="off", which chooses nothing')
    if found and PROBING[probing].by_epoch:
        raise UsageError.refuse(FIELD, weight, f'0 with probing="{probing}", which ignores energy')
    return found


def check_metered(weight: float, devices: Iterable[Device]) -> None:
    """Raise UsageError, with the reason, if none of ``devices`` measures energy for ``weight``.

    Without any device nothing is known yet, and nothing is refused.
    """
    reasons = {device.unmetered: device.name for device in devices}
    if weight and reasons and "" not in reasons:
        why = "; ".join(f"{name}: {reason}" for reason, name in reasons.items())
        allowed = f"0: energy is not measured here ({why})"
        raise UsageError.refuse(FIELD, weight, allowed)
