"""Checks the amounts that a study is given: its weight, the weight of energy, its limits.

They are checked alike in script, command and scheduler.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ...extensions.limits.limits import unaccountable
from ...profiling.base.errors import UsageError
from ...profiling.knobs.racing import PROBING
from ...scheduler.model.study import AT_LIMIT, POINT_IN_TIME, deadline_of
from ..common.validation import finite, whole

if TYPE_CHECKING:
    from ...profiling.devices.device import Device
    from ...scheduler.model.study import StudySpec

#: The range of weights. Beyond it a study gets almost everything or nothing, as priorities do.
LOWEST, HIGHEST = 1e-3, 1e3
#: Priorities range from ``-MAX_PRIORITY`` to ``MAX_PRIORITY``.
MAX_PRIORITY = 1000

#: The fields of ``Limits`` that are amounts, with their units.
AMOUNTS = {"device_hours": "device-hours", "kwh": "kilowatt-hours", "money": "money"}

ENERGY_FIELD = "system.energy_weight"
ENERGY_ALLOWED = "a weight of energy, 0 (time alone) to 1 (energy alone)"


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


def check_energy_weight(weight: object, mode: str, probing: str) -> float:
    """``weight``, checked; UsageError where no choice could depend on it."""
    found = finite(ENERGY_FIELD, weight, ENERGY_ALLOWED)
    if not 0 <= found <= 1:
        raise UsageError.refuse(ENERGY_FIELD, weight, ENERGY_ALLOWED)
    if found and mode == "off":
        raise UsageError.refuse(ENERGY_FIELD, weight, '0 with mode="off", which chooses nothing')
    if found and PROBING[probing].by_epoch:
        raise UsageError.refuse(
            ENERGY_FIELD, weight, f'0 with probing="{probing}", which ignores energy'
        )
    return found


def check_metered(weight: float, devices: Iterable[Device]) -> None:
    """Raise UsageError, with the reason, if none of ``devices`` measures energy for ``weight``.

    Without any device nothing is known yet, and nothing is refused.
    """
    reasons = {device.unmetered: device.name for device in devices}
    if weight and reasons and "" not in reasons:
        why = "; ".join(f"{name}: {reason}" for reason, name in reasons.items())
        allowed = f"0: energy is not measured here ({why})"
        raise UsageError.refuse(ENERGY_FIELD, weight, allowed)


def check_amount(name: str, value: Any) -> float | None:
    """``value`` as a limit of ``AMOUNTS``; UsageError if it is not above 0 and finite."""
    if value is None:
        return None
    field, allowed = f"limits.{name}", f"{AMOUNTS[name]} above 0, or None"
    number = finite(field, value, allowed)
    if number <= 0:
        raise UsageError.refuse(field, value, allowed)
    return number


def check_deadline(value: Any) -> float | None:
    """``value`` as a deadline in seconds (``StudySpec.deadline``); UsageError if it is none."""
    if value is None:
        return None
    allowed = (
        "seconds above 0 since the submission, or a point in time with its time zone (a datetime or"
        " ISO 8601, as 2030-01-31T18:00:00+01:00), or None"
    )
    moment = value
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            raise UsageError.refuse("limits.deadline", value, allowed) from None
    if isinstance(moment, datetime):
        seconds_since = moment.timestamp() if moment.tzinfo is not None else 0.0
        if seconds_since < POINT_IN_TIME:
            raise UsageError.refuse("limits.deadline", str(value), allowed)
        return seconds_since
    number = finite("limits.deadline", moment, allowed)
    if number <= 0:
        raise UsageError.refuse("limits.deadline", value, allowed)
    return number


def check_at_limit(value: Any) -> str:
    """``value`` as what is done at a limit; UsageError if it is none of ``AT_LIMIT``."""
    if value not in AT_LIMIT:
        raise UsageError.refuse("limits.at_limit", value, ", ".join(AT_LIMIT))
    return str(value)


def check_limits(spec: StudySpec) -> None:
    """Check the limits of a study that arrives at the scheduler. Raises UsageError."""
    for name in AMOUNTS:
        check_amount(name, getattr(spec, name))
    check_deadline(spec.deadline)
    check_at_limit(spec.at_limit)


def check_can_hold(
    spec: StudySpec, prices: Mapping[str, float], devices: Iterable[Device], at: float
) -> None:
    """Refuse a study that is submitted at ``at`` (seconds) and whose limits could not hold.

    ``prices`` are those of the scheduler. Without any device nothing is known of meters yet.
    """
    if (end := deadline_of(spec, at)) is not None and end <= at:
        moment = datetime.fromtimestamp(end, UTC).isoformat()
        raise UsageError.refuse("limits.deadline", moment, "a point in time that is yet to come")
    if spec.money is not None and not prices:
        allowed = "None where no device has a price: PENSTOCK_PRICES says them, as in cuda=2.5"
        raise UsageError.refuse("limits.money", spec.money, allowed)
    reasons = {device.name: unaccountable(spec, prices, device) for device in devices}
    if reasons and all(reasons.values()):
        field = "limits.kwh" if spec.kwh is not None else "limits.money"
        alike = defaultdict[str, list[str]](list)
        for name, reason in sorted(reasons.items()):
            alike[reason].append(name)
        why = "; ".join(f"{', '.join(names)}: {reason}" for reason, names in alike.items())
        value = spec.kwh if spec.kwh is not None else spec.money
        raise UsageError.refuse(field, value, f"None, as no device can work for it ({why})")
