"""Conditional parameters, which are active only if an earlier choice has certain values.

An example is ``Float(0.8, 0.99, when={"optimizer": "sgd"})``. If ``when`` has several names, all of
these parents must match. If ``when`` has several values for one name, any of the values may match.
A parent comes before its children in the space. So a single pass in that order decides which
parameters are active. An inactive parent makes its children inactive.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...base.errors import UsageError
from ...scheduler.model.study import Condition, Scalar


def parse_conditions(space: Mapping[str, Any]) -> tuple[Condition, ...]:
    """Return the conditions of all parameters in ``space``, in the order of the space.

    ``space`` must be one that ``parse_space`` accepts. Raises UsageError if the parent in a
    condition is not a categorical parameter earlier in the space, or does not have the value that
    the condition needs.
    """
    conditions: list[Condition] = []
    above: dict[str, Sequence[Scalar]] = {}
    for name, value in space.items():
        when = getattr(value, "when", None)
        if when is not None:
            conditions += _conditions(f"space[{name!r}].when", name, when, above)
        choices = value if isinstance(value, (list, tuple)) else getattr(value, "choices", None)
        if choices is not None:
            above[name] = choices
    return tuple(conditions)


def _conditions(
    field: str, name: str, when: Any, above: Mapping[str, Sequence[Scalar]]
) -> list[Condition]:
    if not isinstance(when, Mapping) or not when:
        allowed = "a mapping of a parameter's name to its value or values"
        raise UsageError.refuse(field, when, allowed)
    conditions = []
    for parent, accepted in when.items():
        if parent not in above:
            names_above = ", ".join(above) or "there is none"
            raise UsageError.refuse(
                field, parent, f"the name of a list of choices above it: {names_above}"
            )
        values = accepted if isinstance(accepted, (list, tuple)) else [accepted]
        choices = list(above[parent])
        wrong = [value for value in values if value not in choices]
        if wrong or not values:
            allowed = f"one or several of {choices}"
            raise UsageError.refuse(
                f"{field}[{parent!r}]", wrong[0] if wrong else accepted, allowed
            )
        chosen_values = tuple(choices[choices.index(value)] for value in values)
        conditions.append(Condition(name, parent, chosen_values))
    return conditions


def is_active(name: str, conditions: Sequence[Condition], params: Mapping[str, Scalar]) -> bool:
    """Return True if the conditions of the parameter ``name`` hold.

    ``params`` contains the values of the active parameters that come before ``name`` in the space.
    """
    return all(
        each.parent in params and params[each.parent] in each.values
        for each in conditions
        if each.name == name
    )


def without_inactive(
    params: Mapping[str, Scalar], conditions: Sequence[Condition]
) -> dict[str, Scalar]:
    """Return ``params`` without its inactive parameters.

    ``params`` must be in the order of the space.
    """
    active: dict[str, Scalar] = {}
    for name, value in params.items():
        if is_active(name, conditions, active):
            active[name] = value
    return active
