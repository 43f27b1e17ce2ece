"""The distance of a study from its limits, and limits that cannot be enforced."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ...profiling.devices.device import Device
from ...scheduler.model.study import HOUR, KWH, Spent, StudySpec, deadline_of

#: Relative tolerance with which a limit counts as reached at the time computed for it.
TOLERANCE = 1e-9


class Limit(NamedTuple):
    """A limit of a study: its name in ``StudySpec``, the amount used, and the most allowed.

    The units are device-hours, kilowatt-hours, money, or, for a deadline, seconds since submission.
    """

    name: str
    used: float
    most: float

    @property
    def is_reached(self) -> bool:
        return self.used >= self.most * (1 - TOLERANCE)


def limits_of(spec: StudySpec, spent: Spent, created_at: float, at: float) -> list[Limit]:
    """Return the study's limits with the amounts used by ``at`` (the runner's clock)."""
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
    """Return the reason why a limit cannot be enforced on ``device``; empty if all limits can."""
    if spec.money is not None and device.kind not in prices:
        return no_price(device.kind)
    if spec.kwh is not None and device.unmetered:
        return f"its energy is not measured ({device.unmetered}), and the study limits energy"
    return ""
