"""Metrics of a model that training does not change, and their bounds, before its first epoch."""

from __future__ import annotations

from ..contracts.contract import TorchTrainable
from ..contracts.metrics import check_bounds, numbers
from ..nas.graphs.running import unchanged
from ..process.messages import SegmentTask
from .training import Training


def fix(training: Training, task: SegmentTask) -> None:
    """Find the trial's fixed metrics, unless they are known. In a gang those of rank 0 count.

    Raises ``Infeasible`` where they exceed a constraint, UsageError for what is no number, and what
    the user's code raises.
    """
    code = training.code
    if type(code).fixed_metrics is TorchTrainable.fixed_metrics:
        return
    found = training.fixed
    if found is None:
        with unchanged(training.model):
            found = numbers(code.fixed_metrics(training.model), "fixed_metrics")
    if training.gang is not None:
        found = dict(training.gang.collect([found])[0])
    training.fixed = found
    check_bounds(found, task)
