"""What is reported of an epoch's metrics."""

from __future__ import annotations

import math
from collections.abc import Mapping

from ...profiling.base.errors import TrialFailed
from ..process.messages import SegmentTask


def checked(metrics: Mapping[str, float], task: SegmentTask, epoch: int) -> dict[str, float]:
    """What is reported of ``metrics``: finite ones. All that the study names must be among them."""
    for name in (task.metric, *task.also):
        value = metrics.get(name)
        if value is None:
            there = ", ".join(sorted(metrics))
            raise TrialFailed("metric", f"no metric {name!r}; those there are: {there}")
        if not math.isfinite(value):
            raise TrialFailed("nan", f"{name} is {value} after epoch {epoch}")
    return {name: number for name, number in metrics.items() if math.isfinite(number)}
