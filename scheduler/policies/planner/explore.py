"""A width that a trial was never measured at, tried for an epoch on devices that are idle.

Theory of operation. Plans go by estimates with caution, so a trial that has run on w devices only
would never find out that it is faster on more. Where nobody waits and devices are idle, one trial
at a time is given up to twice as many for an epoch, as in Pollux (Qiao et al., OSDI 2021, section
4.1), where no job gets more than twice what it ran on. It is that which has longest to go, of those
for which the gain that may be hoped for, over all its epochs, is more than the loss that is to be
feared in one. What the epoch took is then known, and the next plan goes by that.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...model.snapshot import Candidate, Course
from .list_scheduling import Forecast
from .widen import LONG_ENOUGH
from .width_plan import Job

#: Epochs that a trial must have ahead.
FEWEST = 3


def width_to_try(
    candidates: Sequence[Candidate], jobs: Sequence[Job], devices: int, planned: Forecast
) -> tuple[str, Course] | None:
    """Which trial is to try what, where ``planned`` leaves devices idle; None: nobody."""
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
    """Whether it is in an epoch at a width that it was not measured at, after others."""
    return each.epoch > 0 and each.boundary > 0 and _unknown(each, each.width)


def _unknown(each: Candidate, width: int) -> bool:
    return bool(each.hope) and each.hope[width - 1][1] < each.shape[width - 1][1]


def _pays(each: Candidate, job: Job, width: int, wide: int) -> bool:
    """Whether an epoch on ``wide`` devices instead of ``width`` is worth its risk."""
    if wide <= width or job.epochs < FEWEST or each.epoch == 0 or not _unknown(each, wide):
        return False
    if each.level is None or each.level < LONG_ENOUGH or _unknown(each, width):
        return False
    now = each.shape[width - 1][1]
    gain = job.epochs * (1 - each.hope[wide - 1][1] / now)
    loss = max(0.0, each.shape[wide - 1][1] / now - 1)
    return (gain - loss) * job.seconds(width) > 2 * job.price
