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

from ...model.snapshot import Candidate, Course
from .list_scheduling import Forecast
from .widen import LONG_ENOUGH
from .width_plan import Job

#: The fewest epochs that a trial must have left.
FEWEST = 3


def width_to_try(
    candidates: Sequence[Candidate], jobs: Sequence[Job], devices: int, planned: Forecast
) -> tuple[str, Course] | None:
    """The trial that is to explore, and its width plan; None if there is none.

    ``planned`` is the forecast of the plan, which may leave devices idle.
    """
    spare = devices - sum(max(job.held, planned.widths[job.trial]) for job in jobs)
    if planned.late or spare <= 0 or any(map(_tries, candidates)):
        return None
    found: list[tuple[float, str, Course]] = []
    for each, job in zip(candidates, jobs, strict=True):
        width = planned.widths[job.trial]
        wide = min(2 * width, each.widest, width + spare)
        if _pays(each, job, width, wide):
            found.append((job.epochs * job.seconds(width), job.trial, Course(width, wide, 1)))
    if not found:
        return None
    _, trial, course = max(found)
    return trial, course


def _tries(each: Candidate) -> bool:
    """Whether it is exploring now: its current epoch is at a width that was never measured."""
    return each.epoch > 0 and each.boundary > 0 and _unknown(each, each.width)


def _unknown(each: Candidate, width: int) -> bool:
    return bool(each.hope) and each.hope[width - 1][1] < each.shape[width - 1][1]


def _pays(each: Candidate, job: Job, width: int, wide: int) -> bool:
    """Whether one epoch on ``wide`` devices instead of ``width`` is worth the risk."""
    if wide <= width or job.epochs < FEWEST or each.epoch == 0 or not _unknown(each, wide):
        return False
    if each.level is None or each.level < LONG_ENOUGH or _unknown(each, width):
        return False
    now = each.shape[width - 1][1]
    gain = job.epochs * (1 - each.hope[wide - 1][1] / now)
    loss = max(0.0, each.shape[wide - 1][1] / now - 1)
    return (gain - loss) * job.seconds(width) > 2 * job.price
