"""Choose and check the metrics that are reported of an epoch."""

from __future__ import annotations

import math
from collections.abc import Mapping

from ...profiling.base.errors import TrialFailed
from ..process.messages import SegmentTask


def checked(metrics: Mapping[str, float], task: SegmentTask, epoch: int) -> dict[str, float]:
    """The finite ones of ``metrics``. All that the study names must be among them.

    Raises ``TrialFailed`` (metric, nan) where one of those is missing or not finite.
    """
    for name in (task.metric, *task.also):
        value = metrics.get(name)
        if value is None:
            names = ", ".join(sorted(metrics))
            raise TrialFailed("metric", f"no metric {name!r}; those there are: {names}")
        if not math.isfinite(value):
            raise TrialFailed("nan", f"{name} is {value} after epoch {epoch}")
    return {name: number for name, number in metrics.items() if math.isfinite(number)}
