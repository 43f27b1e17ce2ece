"""Exploration: a trial runs one epoch at a width that was never measured, on idle devices.

Theory of operation. Plans use cautious estimates, so a trial that has run only on w devices would
never find out that it is faster on more. If no trial waits and devices are idle, one trial at a
time is given up to twice as many devices for an epoch. This follows Pollux (Qiao et al., OSDI 2021,
section 4.1), where no job gets more than twice what it ran on. The trial must have more to gain
over all its epochs, by the optimistic estimate, than to lose in one, by the cautious estimate. Of
such trials the one with the most work left is chosen. The epoch is then measured, and the next plan
uses the result.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...model.snapshot import Candidate, WidthPlan
from .list_scheduling import Forecast
from .widen import MIN_EPOCH_SECONDS
from .width_plan import Job

#: The fewest epochs that a trial must have left.
MIN_EPOCHS_LEFT = 3


def exploration(
    candidates: Sequence[Candidate], jobs: Sequence[Job], devices: int, forecast: Forecast
) -> tuple[str, WidthPlan] | None:
    """The trial that is to explore, and its width plan; None if there is none.

    ``forecast`` is the forecast of the plan, which may leave devices idle.
    """
    spare = devices - sum(max(job.held, forecast.widths[job.trial]) for job in jobs)
    if forecast.late or spare <= 0 or any(map(_is_exploring, candidates)):
        return None
    found: list[tuple[float, str, WidthPlan]] = []
    for each, job in zip(candidates, jobs, strict=True):
        width = forecast.widths[job.trial]
        wide = min(2 * width, each.widest, width + spare)
        if _is_worthwhile(each, job, width, wide):
            found.append((job.epochs * job.seconds(width), job.trial, WidthPlan(width, wide, 1)))
    if not found:
        return None
    _, trial, width_plan = max(found)
    return trial, width_plan


def _is_exploring(each: Candidate) -> bool:
    """Whether it is exploring now: its current epoch is at a width that was never measured."""
    return each.epoch > 0 and each.boundary > 0 and _is_unmeasured(each, each.width)


def _is_unmeasured(each: Candidate, width: int) -> bool:
    return bool(each.hope) and each.hope[width - 1][1] < each.shape[width - 1][1]


def _is_worthwhile(each: Candidate, job: Job, width: int, wide: int) -> bool:
    """Whether one epoch on ``wide`` devices instead of ``width`` is worth the risk."""
    if (
        wide <= width
        or job.epochs < MIN_EPOCHS_LEFT
        or each.epoch == 0
        or not _is_unmeasured(each, wide)
    ):
        return False
    if each.level is None or each.level < MIN_EPOCH_SECONDS or _is_unmeasured(each, width):
        return False
    now = each.shape[width - 1][1]
    gain = job.epochs * (1 - each.hope[wide - 1][1] / now)
    loss = max(0.0, each.shape[wide - 1][1] / now - 1)
    return (gain - loss) * job.seconds(width) > 2 * job.price
