"""Checks the limits of a study: the same checks for script, command line and scheduler."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from ...app.common.validation import ABOVE_0, finite, one_of
from ...base.errors import UsageError
from ...scheduler.model.study import AT_LIMIT, POINT_IN_TIME, deadline_of
from .limits import unaccountable

if TYPE_CHECKING:
    from ...scheduler.model.study import StudySpec
    from ...scheduler.state.state import EngineState

#: The limits that are amounts, each with its unit.
_AMOUNTS = {"device_hours": "device-hours", "kwh": "kilowatt-hours", "money": "money"}


def _amount(unit: str, field: str, value: Any) -> float | None:
    if value is None:
        return None
    return finite(field, value, f"{unit} above 0, or None", ABOVE_0)


def _deadline(field: str, value: Any) -> float | None:
    """Return a deadline in seconds, as ``StudySpec.deadline`` has it.

    The user may give seconds since the submission, or a point in time as a datetime or in ISO 8601.
    """
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
            raise UsageError.refuse(field, value, allowed) from None
    if isinstance(moment, datetime):
        seconds_since = moment.timestamp() if moment.tzinfo is not None else 0.0
        if seconds_since < POINT_IN_TIME:
            raise UsageError.refuse(field, str(value), allowed)
        return seconds_since
    return finite(field, moment, allowed, ABOVE_0)


def _at_limit(field: str, value: Any) -> str:
    return str(one_of(field, value, AT_LIMIT))


#: The checks of fields, by name. A check takes the field's name, for messages, and a user's value.
#: The check returns the value to keep, or raises UsageError.
CHECKS: Mapping[str, Callable[[str, Any], Any]] = {
    **{name: partial(_amount, unit) for name, unit in _AMOUNTS.items()},
    "deadline": _deadline,
    "at_limit": _at_limit,
}


def check_spec(spec: StudySpec) -> None:
    """Raise UsageError if a limit in a spec that arrives at the scheduler is invalid."""
    for name, check in CHECKS.items():
        check(f"limits.{name}", getattr(spec, name))


def check_submitted(spec: StudySpec, state: EngineState, at: float) -> None:
    """Raise UsageError if the limits of a study that is submitted at ``at`` cannot be enforced.

    ``at`` is in seconds since 1970. The study is refused if its deadline has passed, or if every
    device lacks the price or the meter that a limit needs. Energy limits are not checked while
    there is no device, because no meter is known then.
    """
    prices = state.prices
    if (end := deadline_of(spec, at)) is not None and end <= at:
        moment = datetime.fromtimestamp(end, UTC).isoformat()
        raise UsageError.refuse("limits.deadline", moment, "a point in time that is yet to come")
    if spec.money is not None and not prices:
        allowed = "None, because no device has a price: set PENSTOCK_PRICES, as in cuda=2.5"
        raise UsageError.refuse("limits.money", spec.money, allowed)
    reasons = {
        name: unaccountable(spec, prices, each.device) for name, each in state.devices.items()
    }
    if reasons and all(reasons.values()):
        field = "limits.kwh" if spec.kwh is not None else "limits.money"
        alike = defaultdict[str, list[str]](list)
        for name, reason in sorted(reasons.items()):
            alike[reason].append(name)
        why = "; ".join(f"{', '.join(names)}: {reason}" for reason, names in alike.items())
        value = spec.kwh if spec.kwh is not None else spec.money
        raise UsageError.refuse(field, value, f"None, as no device can work for it ({why})")
