"""Parse the objectives and constraints that a user gives a study.

A constraint is a metric with its highest allowed value, such as ``{"latency_ms": 20.0}``. A trial
above this value is never the best trial. For a metric with a lowest allowed value, report the
negative of the metric.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...base.errors import UsageError
from ...scheduler.model.study import Objective, StrategySpec
from ..common.validation import finite, one_of

DIRECTIONS = ("minimize", "maximize")

#: The description of an allowed metric name, for error messages.
METRIC = "the name of a metric, in printable characters"


def parse_objectives(
    direction: Any, metric: Any, directions: Any
) -> tuple[str | None, str, tuple[Objective, ...]]:
    """Return the first metric, its direction, and the objectives after the first.

    The metric is None if the user named none, as for an objective that returns its value. Raises
    UsageError with the name of the refused argument.
    """
    if directions is None:
        if isinstance(metric, list | tuple):
            allowed = f"{METRIC}; a list of them goes with directions"
            raise UsageError.refuse("metric", metric, allowed)
        return (
            _metric("metric", metric),
            _direction("direction", "minimize" if direction is None else direction),
            (),
        )
    if direction is not None:
        allowed = "None, because directions is given: give one of the two"
        raise UsageError.refuse("direction", direction, allowed)
    ways = [
        _direction(f"directions[{k}]", d) for k, d in enumerate(_list("directions", directions))
    ]
    if metric is None:
        # An objective returns values without names; Optuna's data frames name them so.
        names: list[str | None] = [f"values_{k}" for k in range(len(ways))]
    else:
        names = [
            _metric(f"metric[{k}]", name or "") for k, name in enumerate(_list("metric", metric))
        ]
        if len(names) != len(ways):
            allowed = f"as many names as there are directions, {len(ways)}"
            raise UsageError.refuse("metric", metric, allowed)
        if len(set(names)) < len(names):
            raise UsageError.refuse("metric", metric, "distinct names")
    further = [Objective(str(name), way) for name, way in zip(names[1:], ways[1:], strict=True)]
    return names[0] if metric is not None else None, ways[0], tuple(further)


def parse_constraints(given: Any) -> tuple[tuple[str, float], ...]:
    """Return the constraints as pairs of a metric and its highest allowed value.

    Raises UsageError if ``given`` is not a mapping or if an entry is refused. The message names the
    entry.
    """
    if given is None:
        return ()
    if not isinstance(given, Mapping) or not given:
        allowed = "a mapping of metrics to the highest value of each, as {'latency_ms': 20.0}"
        raise UsageError.refuse("constraints", given, allowed)
    bounds = []
    for name, bound in given.items():
        if not isinstance(name, str) or not name or not name.isprintable():
            raise UsageError.refuse("a name in constraints", name, METRIC)
        allowed = "a finite number, the highest value of this metric"
        bounds.append((name, finite(f"constraints[{name!r}]", bound, allowed)))
    return tuple(bounds)


def check_strategy(strategy: StrategySpec) -> None:
    """Raise UsageError for a strategy that a study with several objectives cannot use.

    Only the full budget is allowed, since all other strategies rank trials by a single value.
    """
    if strategy.name != "full":
        allowed = "FullBudget(...) or None with several objectives: the others rank by one value"
        raise UsageError.refuse("strategy", strategy.name, allowed)


def _direction(field: str, value: Any) -> str:
    """Return ``value`` as ``minimize`` or ``maximize``.

    ``value`` may also be a member of Optuna's ``StudyDirection``. Raises UsageError, naming
    ``field``, for any other value.
    """
    value = getattr(value, "name", value)
    value = value.lower() if isinstance(value, str) else value
    return str(one_of(field, value, DIRECTIONS, " or ".join(DIRECTIONS)))


def _metric(field: str, value: Any) -> str | None:
    if value is not None and (not isinstance(value, str) or not value or not value.isprintable()):
        raise UsageError.refuse(field, value, METRIC)
    return value


def _list(field: str, value: Any) -> list[Any]:
    if isinstance(value, str) or not isinstance(value, (list, tuple)) or not value:
        raise UsageError.refuse(field, value, "a list with one entry for each objective")
    return list(value)
