"""Parameters that are only there where a choice above them has certain values.

``Float(0.8, 0.99, when={"optimizer": "sgd"})``: several names must all hold, several values are
alternatives. A parent stands above its children, so one pass in the order of the space settles what
is there. A parent that is not there itself leaves its children out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...profiling.base.errors import UsageError
from ...scheduler.model.study import Condition, Scalar


def parse_conditions(space: Mapping[str, Any]) -> tuple[Condition, ...]:
    """What the parameters of a space that ``parse_space`` has taken depend on, in its order.

    Raises UsageError for a parent that is no choice above the parameter, and for a value that it
    does not have.
    """
    found: list[Condition] = []
    above: dict[str, Sequence[Scalar]] = {}
    for name, value in space.items():
        when = getattr(value, "when", None)
        if when is not None:
            found += _conditions(f"space[{name!r}].when", name, when, above)
        choices = value if isinstance(value, (list, tuple)) else getattr(value, "choices", None)
        if choices is not None:
            above[name] = choices
    return tuple(found)


def _conditions(
    field: str, name: str, when: Any, above: Mapping[str, Sequence[Scalar]]
) -> list[Condition]:
    if not isinstance(when, Mapping) or not when:
        allowed = "a mapping of a parameter's name to its value or values"
        raise UsageError.refuse(field, when, allowed)
    found = []
    for parent, wanted in when.items():
        if parent not in above:
            there = f"{', '.join(above) or 'there is none'}"
            raise UsageError.refuse(
                field, parent, f"the name of a list of choices above it: {there}"
            )
        values = wanted if isinstance(wanted, (list, tuple)) else [wanted]
        choices = list(above[parent])
        wrong = [value for value in values if value not in choices]
        if wrong or not values:
            allowed = f"one or several of {choices}"
            raise UsageError.refuse(f"{field}[{parent!r}]", wrong[0] if wrong else wanted, allowed)
        kept = tuple(choices[choices.index(value)] for value in values)
        found.append(Condition(name, parent, kept))
    return found


def is_active(name: str, conditions: Sequence[Condition], params: Mapping[str, Scalar]) -> bool:
    """Whether the parameter is there, given those above it that are."""
    return all(
        each.parent in params and params[each.parent] in each.values
        for each in conditions
        if each.name == name
    )


def without_inactive(
    params: Mapping[str, Scalar], conditions: Sequence[Condition]
) -> dict[str, Scalar]:
    """``params`` (in the order of the space) without those that their parents leave out."""
    left: dict[str, Scalar] = {}
    for name, value in params.items():
        if is_active(name, conditions, left):
            left[name] = value
    return left
