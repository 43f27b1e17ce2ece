"""The distance of a study from its limits, and limits that cannot be enforced on a device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ...profiling.devices.device import Device
from ...scheduler.model.study import HOUR, KWH, Spent, StudySpec, deadline_of

#: Relative tolerance: a limit counts as reached if the amount used is this close to it. The engine
#: computes the time at which a limit is reached, and rounding must not put the check before that
#: time.
TOLERANCE = 1e-9


class Limit(NamedTuple):
    """A limit of a study: its name in ``StudySpec``, the amount used, and the most allowed.

    The amounts are device-hours, kilowatt-hours or money. For a deadline, both are seconds since
    the submission.
    """

    name: str
    used: float
    most: float

    @property
    def is_reached(self) -> bool:
        return self.used >= self.most * (1 - TOLERANCE)


def limits_of(spec: StudySpec, spent: Spent, created_at: float, at: float) -> list[Limit]:
    """Return the study's limits, with the amounts used by the time ``at``.

    ``created_at`` is the time of the submission. Both times are seconds of the runner's clock.
    """
    end = deadline_of(spec, created_at)
    amounts = (
        ("device_hours", spent.device_seconds / HOUR, spec.device_hours),
        ("kwh", spent.joules / KWH, spec.kwh),
        ("money", spent.money, spec.money),
        ("deadline", at - created_at, None if end is None else end - created_at),
    )
    return [Limit(name, used, most) for name, used, most in amounts if most is not None]


def no_price(kind: str) -> str:
    """Return the reason to refuse devices of ``kind`` for a study that limits money."""
    return f"devices of kind {kind} have no price (PENSTOCK_PRICES), and the study limits money"


def unaccountable(spec: StudySpec, prices: Mapping[str, float], device: Device) -> str:
    """Return the reason why a limit of the study cannot be enforced on ``device``.

    ``prices`` has the price of a device-hour by kind of device. The result is empty if all limits
    of the study can be enforced.
    """
    if spec.money is not None and device.kind not in prices:
        return no_price(device.kind)
    if spec.kwh is not None and device.unmetered:
        return f"its energy is not measured ({device.unmetered}), and the study limits energy"
    return ""
