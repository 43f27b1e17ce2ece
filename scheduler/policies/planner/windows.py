"""Width windows: trials measure wider widths on idle devices, before their next epoch.

Theory of operation. A plan widens a trial only if widths of the trial or of its study were
measured, so some trial must measure them. A window takes a few steps at each width
(``profiling.costs.width_window``) on devices that no trial wants. Its cost is the time for which
its trial waits. So a window may take a small part (``SHARE``) of the work that its trial has left,
or of its share of the work that its study has left. If the optimistic estimate sees nothing to
gain, the window may take a very small part (``BLIND_SHARE``), but not none: a curve may jump, and a
search that never looks beyond one bad width loses most. If a resize alone takes longer than that
part, no window is opened.

Idle devices are shared evenly between the trials that have most work left. A study of which nothing
is known opens its first windows before anything else runs, since its longest trials may have to be
wide from the start.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ....profiling.costs.width_window import MEETING, widths_up_to
from ...model.snapshot import Candidate, WindowPlan
from .widen import MIN_EPOCH_SECONDS
from .width_plan import Job

#: The part of a trial's remaining work that its first window may take.
SHARE = 0.10
#: The part of a trial's remaining work that each further window may take.
FURTHER_SHARE = 0.02
#: The part of the remaining work for a window that gains nothing by the optimistic estimate: a
#: curve may jump.
BLIND_SHARE = 0.01
#: The part of a study's time on all devices that its first windows may take while trials wait.
BUSY_SHARE = 0.02
#: The most windows open at the same time.
MAX_WINDOWS = 4
#: The most windows of a study of which nothing is known: few and wide windows tell the most.
FIRST_WINDOWS = 2
#: Number of cut windows after which a trial gets no further windows.
MAX_CUT_WINDOWS = 3
#: The least gain that the optimistic estimate must promise, as a part of the trial's time.
MIN_GAIN = 0.05


def windows(
    candidates: Sequence[Candidate], jobs: Sequence[Job], devices: int, begun: Mapping[str, int]
) -> dict[str, WindowPlan]:
    """Return the windows to open on idle devices, by trial.

    ``begun`` has the width at which each trial starts under the plan.
    """
    idle = devices - sum(max(job.held, begun[job.trial]) for job in jobs)
    idle -= sum(1 for each in candidates if each.measuring)
    waiting = [
        (job.epochs * job.seconds(begun[job.trial]), candidate, job)
        for candidate, job in zip(candidates, jobs, strict=True)
        if _is_measurable(candidate) and not candidate.measuring
    ]
    waiting.sort(key=lambda each: (-each[0], each[1].trial))
    opened: dict[str, WindowPlan] = {}
    for _, candidate, job in waiting:
        if idle <= 0 or len(opened) == MAX_WINDOWS:
            break
        width = begun[job.trial]
        share = max(1, idle // min(MAX_WINDOWS - len(opened), max(1, len(waiting) - len(opened))))
        wider = min(width + share, candidate.widest)
        epochs = _most_epochs(candidate, job, devices, hopeful=_has_hope(candidate, width, wider))
        if _is_worthwhile(candidate, job, epochs, width, wider):
            # One device links what steps and epochs take; if it is not known, others must.
            measured = {*candidate.measured} - {1} if 1 in candidate.measured else set()
            widths = tuple(each for each in widths_up_to(wider) if each not in measured)
            opened[job.trial] = WindowPlan(widths, epochs)
            idle -= wider - width
    return opened


def first_windows(
    candidates: Sequence[Candidate],
    jobs: Mapping[str, Job],
    order: Sequence[str],
    *,
    devices: int,
    free: int,
) -> dict[str, WindowPlan]:
    """Return the first windows of unmeasured studies on ``free`` devices, by trial.

    Other trials wait for the free devices, so the first trials in ``order`` do the measuring.
    """
    studies = {each.study for each in candidates if each.epoch or each.window or each.measuring}
    of = {each.trial: each for each in candidates}
    new = [
        each for each in (of[name] for name in order) if each.widest > 1 and _is_measurable(each)
    ]
    new = [each for each in new if each.study not in studies]
    opened: dict[str, WindowPlan] = {}
    for remaining, candidate in zip(range(min(FIRST_WINDOWS, len(new)), 0, -1), new, strict=False):
        wider = min(free // remaining, candidate.widest)
        job, epochs = jobs[candidate.trial], BUSY_SHARE * candidate.ahead / devices
        worthwhile = epochs and _is_worthwhile(candidate, job, epochs, 1, wider)
        if worthwhile and _has_hope(candidate, 1, wider):
            opened[candidate.trial] = WindowPlan(widths_up_to(wider), epochs, lasts=True)
            free -= wider
    return opened


def _is_measurable(candidate: Candidate) -> bool:
    """Return True if the candidate can measure widths, and measurements could change its shape."""
    may = candidate.measurable and candidate.cut_windows < MAX_CUT_WINDOWS
    return may and candidate.hope not in ((), candidate.shape)


def _most_epochs(candidate: Candidate, job: Job, devices: int, *, hopeful: bool) -> float:
    """Return the longest time that a window of the candidate may take (in epochs)."""
    share = BLIND_SHARE
    if hopeful:
        share = FURTHER_SHARE if candidate.window else SHARE
    # Windows that are cut again and again so take no more together than two whole ones.
    return share * max(job.epochs, candidate.ahead / devices) / 2.0**candidate.cut_windows


def _is_worthwhile(candidate: Candidate, job: Job, epochs: float, width: int, wider: int) -> bool:
    """Return True if it may pay to measure widths up to ``wider`` for ``epochs`` epochs.

    Without the measurement, the trial would run at ``width``.
    """
    widest = max(candidate.window, *candidate.measured, 1)
    if wider <= width or job.epochs == 0 or (wider < 2 * widest and widest > 1):
        return False
    if candidate.level is None:
        return True
    return candidate.level >= MIN_EPOCH_SECONDS and job.resize_cost <= MEETING * epochs * job.level


def _has_hope(candidate: Candidate, width: int, wider: int) -> bool:
    """Return True if by the optimistic estimate some wider width is faster than ``width``.

    The widths from ``width + 1`` to ``wider`` are considered. The gain must be at least
    ``MIN_GAIN``.
    """
    both = zip(candidate.hope[width:wider], candidate.shape[width:wider], strict=True)
    best = min((hoped for (_, hoped), (_, sure) in both if hoped < sure), default=math.inf)
    return best < (1.0 - MIN_GAIN) * candidate.shape[width - 1][1]
