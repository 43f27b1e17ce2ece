"""Checks the values of a branch against the space of the branch's study."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ...app.common.validation import finite, whole
from ...app.spec.conditions import is_active
from ...app.spec.space import Categorical, Int, Parameter, check_params, parameter
from ...base.errors import UsageError
from ...scheduler.model.study import Params, Scalar, StudySpec
from ...scheduler.model.trial import Trial
from ...scheduler.state.state import StudyState
from .checks import refusal


def check(study: StudyState, trial: Trial, epoch: int, to: int, copies: int) -> None:
    """Raise UsageError with the reason if the trial cannot be branched in this way."""
    if reason := refusal(study, trial, epoch, to, copies):
        name = study.spec.name
        raise UsageError(f"trial {trial.number} of {name} cannot be branched: {reason}")


class Values(NamedTuple):
    """The parameters of a branch."""

    params: Params
    #: The parameters that differ from the parent's.
    changed: Params
    #: The names of parameters whose values lie outside of the space.
    outside: tuple[str, ...]


def values_of(
    spec: StudySpec, parent: Params, given: Mapping[str, Any], *, outside: bool
) -> Values:
    """Return the parameters of a branch: the parent's, except for those that are ``given``.

    Parameters that are inactive under the given values are left out. Raises UsageError for an
    unknown name, a value of a wrong type, a parameter without a value, and, unless ``outside``, a
    value outside its range.
    """
    distributions = {name: parameter(text, f"space[{name!r}]") for name, text in spec.space or ()}
    for name in given:
        if name not in distributions:
            raise UsageError.refuse("a name in params", name, f"one of {', '.join(distributions)}")
    before, merged = dict(parent), dict[str, Any]()
    assumed = dict(spec.edits.assumed) if spec.edits is not None else {}
    for name in distributions:
        if name in given:
            merged[name] = given[name]
        elif is_active(name, spec.conditions, merged):
            if name not in before:
                if name in assumed:  # added since: like its parent, the branch has none
                    continue
                raise UsageError(f"with these values {name} is a parameter, too: give its value")
            merged[name] = before[name]
    ranges = {name: _range_left(distributions[name], value) for name, value in given.items()}
    beyond = {name: remainder for name, remainder in ranges.items() if remainder}
    numbers = {name: _number(distributions[name], given[name]) for name in beyond}
    for name, inside in beyond.items():
        if not outside:
            allowed = f"{inside}, or any with --outside (from Python outside=True)"
            raise UsageError.refuse(f"params[{name!r}]", given[name], allowed)
        if getattr(distributions[name], "log", False) and merged[name] <= 0:
            raise UsageError.refuse(
                f"params[{name!r}]", merged[name], "more than 0, because its range is log"
            )
    # Accept values outside the space, and the parent's values even if the space was edited since.
    fixed = {name: value for name, value in merged.items() if name not in given} | numbers
    texts = {name: Categorical([value]).to_json() for name, value in fixed.items()}
    space = tuple((name, texts.get(name, text)) for name, text in spec.space or ())
    params = dict(check_params(space, merged | numbers, spec.conditions))
    changed = {name: value for name, value in params.items() if before.get(name, params) != value}
    return Values(
        tuple(params.items()), tuple(changed.items()), tuple(n for n in beyond if n in changed)
    )


def check_differs(values: Values, parent: int, copies: int) -> None:
    """Raise UsageError if a single branch with these values would only repeat its parent."""
    if not values.changed and copies == 1:
        raise UsageError(
            f"a branch with the values of trial {parent} would be trial {parent} again: give a"
            f" value that differs, as lr=0.001, or --copies 2"
        )


def _range_left(distribution: Parameter, value: Any) -> str:
    """Return a parameter's range as words if the number ``value`` lies outside it; else empty."""
    if isinstance(distribution, Categorical) or not isinstance(value, int | float):
        return ""
    is_inside = isinstance(value, bool) or distribution.low <= value <= distribution.high
    return "" if is_inside else f"{distribution.low} to {distribution.high}"


def _number(distribution: Parameter, value: Any) -> Scalar:
    number: Scalar = (
        whole("a value", value) if isinstance(distribution, Int) else finite("a value", value)
    )
    return number
