"""Choose and check the metrics that are reported for an epoch, or for a model before its first."""

from __future__ import annotations

import math
from collections.abc import Mapping

from ...base.errors import TrialFailed, UsageError
from ...base.wording import worded
from ...wire.messages import SegmentTask


def checked(metrics: Mapping[str, float], task: SegmentTask, epoch: int) -> dict[str, float]:
    """Return the finite ones of ``metrics``. Every metric that the study names must be finite.

    Raises ``TrialFailed`` (metric, nan) if a metric that the study names is missing or not finite.
    """
    for name in (task.metric, *task.also):
        value = metrics.get(name)
        if value is None:
            names = ", ".join(sorted(metrics))
            raise TrialFailed("metric", f"no metric {name!r}; those there are: {names}")
        if not math.isfinite(value):
            raise TrialFailed("nan", f"{name} is {value} after epoch {epoch}")
    return {name: number for name, number in metrics.items() if math.isfinite(number)}


class Infeasible(BaseException):
    """A trial exceeds a constraint before its first epoch. Unwinds the code under it.

    ``excess`` is the amount by which it exceeds each known constraint, 0 or less where it does not.
    """

    def __init__(self, excess: dict[str, float]) -> None:
        super().__init__()
        self.excess = excess


def check_bounds(fixed: Mapping[str, float], task: SegmentTask) -> None:
    """Raise ``Infeasible`` if a trial that has no epoch of its own yet exceeds a constraint.

    ``fixed`` are the metrics that training does not change. A trial with an epoch is not checked.
    """
    excesses = {name: fixed[name] - bound for name, bound in task.bounds if name in fixed}
    if task.first == task.origin + 1 and any(excess > 0 for excess in excesses.values()):
        raise Infeasible(excesses)


def numbers(metrics: object, given: str = "metrics") -> dict[str, float]:
    """Return reported metrics as floats. Raises ``UsageError`` for a value that is no number."""
    if not isinstance(metrics, Mapping):
        raise UsageError.refuse(given, metrics, "a dict of names to numbers")
    values: dict[str, float] = {}
    for name, value in metrics.items():
        try:
            values[str(name)] = float(value)
        except (TypeError, ValueError, OverflowError):
            field = f"{given}[{worded(name)}]"
            raise UsageError.refuse(field, value, "a number that a float can hold") from None
    return values
