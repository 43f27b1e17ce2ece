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
    idle = devices - sum(max(job.held, forecast.widths[job.trial]) for job in jobs)
    if forecast.late or idle <= 0 or any(map(_is_exploring, candidates)):
        return None
    found: list[tuple[float, str, WidthPlan]] = []
    for candidate, job in zip(candidates, jobs, strict=True):
        width = forecast.widths[job.trial]
        wider = min(2 * width, candidate.widest, width + idle)
        if _is_worthwhile(candidate, job, width, wider):
            found.append((job.epochs * job.seconds(width), job.trial, WidthPlan(width, wider, 1)))
    if not found:
        return None
    _, trial, width_plan = max(found)
    return trial, width_plan


def _is_exploring(candidate: Candidate) -> bool:
    """Whether it is exploring now: its current epoch is at a width that was never measured."""
    return (
        candidate.epoch > 0
        and candidate.boundary > 0
        and _is_unmeasured(candidate, candidate.width)
    )


def _is_unmeasured(candidate: Candidate, width: int) -> bool:
    return bool(candidate.hope) and candidate.hope[width - 1][1] < candidate.shape[width - 1][1]


def _is_worthwhile(candidate: Candidate, job: Job, width: int, wider: int) -> bool:
    """Whether one epoch on ``wider`` devices instead of ``width`` is worth the risk."""
    if (
        wider <= width
        or job.epochs < MIN_EPOCHS_LEFT
        or candidate.epoch == 0
        or not _is_unmeasured(candidate, wider)
    ):
        return False
    if (
        candidate.level is None
        or candidate.level < MIN_EPOCH_SECONDS
        or _is_unmeasured(candidate, width)
    ):
        return False
    now = candidate.shape[width - 1][1]
    gain = job.epochs * (1 - candidate.hope[wider - 1][1] / now)
    loss = max(0.0, candidate.shape[wider - 1][1] / now - 1)
    return (gain - loss) * job.seconds(width) > 2 * job.resize_cost
