"""Metrics of a model that training does not change, and their bounds, before its first epoch."""

from __future__ import annotations

from collections.abc import Mapping

from ...base.errors import UsageError
from ...wire.messages import SegmentTask
from ..contracts.contract import TorchTrainable
from ..contracts.metrics import check_bounds, numbers
from ..system.unchanged import unchanged
from .training import Training


def fix(training: Training, task: SegmentTask) -> None:
    """Compute the trial's fixed metrics, unless they are known. In a gang, rank 0's count.

    Raises ``Infeasible`` if they exceed a constraint, ``UsageError`` for a value that is no number,
    and any error of the user's code.
    """
    code = training.code
    if type(code).fixed_metrics is TorchTrainable.fixed_metrics:
        return
    fixed = training.fixed
    if fixed is None:
        with unchanged(training.model):
            fixed = numbers(code.fixed_metrics(training.model), "fixed_metrics")
    if training.gang is not None:
        fixed = dict(training.gang.collect([fixed])[0])
    training.fixed = fixed
    check_bounds(fixed, task)


def with_fixed(training: Training, metrics: Mapping[str, float]) -> dict[str, float]:
    """Return ``metrics`` of an epoch and the fixed ones.

    Raises ``UsageError`` for a name that both have.
    """
    fixed = training.fixed or {}
    for name in fixed.keys() & metrics.keys():
        allowed = f"a name that metrics() does not give: {', '.join(metrics)}"
        raise UsageError.refuse("a name of fixed_metrics", name, allowed)
    return fixed | dict(metrics)
