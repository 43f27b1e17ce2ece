"""What is reported of an epoch's metrics."""

from __future__ import annotations

import math
from collections.abc import Mapping

from ..profiling.errors import TrialFailed
from .messages import SegmentTask


def checked(metrics: Mapping[str, float], task: SegmentTask, epoch: int) -> dict[str, float]:
    """What is reported of ``metrics``: finite ones. The study's own must be among them."""
    value = metrics.get(task.metric)
    if value is None:
        there = ", ".join(sorted(metrics))
        raise TrialFailed("metric", f"no metric {task.metric!r}; those there are: {there}")
    if not math.isfinite(value):
        raise TrialFailed("nan", f"{task.metric} is {value} after epoch {epoch}")
    return {name: number for name, number in metrics.items() if math.isfinite(number)}
