"""The distance of a study from its limits, and limits that could not hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ...profiling.devices.device import Device
from ...scheduler.model.study import HOUR, KWH, Spent, StudySpec, deadline_of

#: Relative to a limit: at the moment that was worked out for it, it is reached.
TOLERANCE = 1e-9


class Limit(NamedTuple):
    """A limit of a study: its name in ``StudySpec``, what is used of it, and what may be used.

    The units are device-hours, kilowatt-hours, money, or of a deadline seconds from submission.
    """

    name: str
    used: float
    most: float

    @property
    def is_reached(self) -> bool:
        return self.used >= self.most * (1 - TOLERANCE)


def limits_of(spec: StudySpec, spent: Spent, created_at: float, at: float) -> list[Limit]:
    """Return the limits that the study has, as they stand at ``at`` (the runner's clock)."""
    end = deadline_of(spec, created_at)
    amounts = (
        ("device_hours", spent.device_seconds / HOUR, spec.device_hours),
        ("kwh", spent.joules / KWH, spec.kwh),
        ("money", spent.money, spec.money),
        ("deadline", at - created_at, None if end is None else end - created_at),
    )
    return [Limit(name, used, most) for name, used, most in amounts if most is not None]


def no_price(kind: str) -> str:
    """Return the reason why devices of ``kind`` take no trial of a study that limits money."""
    return f"devices of kind {kind} have no price (PENSTOCK_PRICES), and the study limits money"


def unaccountable(spec: StudySpec, prices: Mapping[str, float], device: Device) -> str:
    """Return the reason why a limit cannot be enforced on the device; empty if all can."""
    if spec.money is not None and device.kind not in prices:
        return no_price(device.kind)
    if spec.kwh is not None and device.unmetered:
        return f"its energy is not measured ({device.unmetered}), and the study limits energy"
    return ""
