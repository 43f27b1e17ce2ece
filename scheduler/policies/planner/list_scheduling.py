"""Forecasts of plans: trials of known speed are run by list scheduling, without events or a clock.

Theory of operation. A trial has a *width plan*: some epochs at a wide width and the others at a
narrow one, or all of them at one width. Devices that become free go by priority to the trials that
want more (list scheduling; Graham 1966); a running trial gets them at the end of its epoch. A trial
whose width plan has two widths begins wide if it can. Otherwise it begins narrow, and is widened
when devices become free. If only its wide epochs are left then, it stays wide.

Only three things change which trial holds which devices: a trial ends, its wide part ends, or a
trial that waits for more devices ends an epoch. So a forecast takes a few steps per trial, however
many epochs the trial has, and a policy can afford several forecasts.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from ...model.snapshot import WidthPlan
from .width_plan import Job

#: Times closer than this are equal (seconds).
_TIME_TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True)
class Forecast:
    """Forecast of the times at which the trials of a plan end.

    ``makespan`` is the time at which the last trial ends, and ``completion`` is the weighted mean
    of the trials' ends (both in seconds from now). ``widths`` has each trial's width after the end
    of its current epoch. ``late`` holds the waiting trials that do not start at once.
    """

    makespan: float
    completion: float
    widths: dict[str, int]
    late: set[str]


@dataclass(slots=True)
class _Run:
    """State of a job (a trial to plan) during the forecast."""

    #: The job.
    job: Job
    #: The job's width plan.
    width_plan: WidthPlan
    #: Epochs left after the boundary.
    left: int
    #: The number of devices that the job holds.
    held: int
    #: The width at which the job last ran.
    last: int
    #: True if the wide part of the width plan is over.
    past_wide: bool = False
    #: The time (seconds from now) since which the job runs at a width that may still change. The
    #: time is None if the width is settled.
    since: float | None = None


@dataclass(slots=True)
class _Schedule:
    """The state of a forecast. Times are in seconds from now."""

    #: The number of free devices.
    free: int
    #: The jobs.
    runs: list[_Run]
    #: The jobs' positions by priority.
    ranks: list[int]
    #: Events: (time, job, True if the job ends then).
    heap: list[tuple[float, int, bool]]
    #: Each trial's width from its next boundary on.
    widths: dict[str, int] = field(default_factory=dict)
    #: When the last job ended so far.
    makespan: float = 0.0
    #: The weighted sum of the ends so far.
    weighted_ends: float = 0.0
    #: The latest end of a job that is foreseen.
    latest_end: float = 0.0
    #: Jobs whose next request for devices is yet to be put on the heap.
    unscheduled: list[int] = field(default_factory=list)
    #: Waiting trials that do not begin at once.
    late: set[str] = field(default_factory=set)


def forecast(
    jobs: Sequence[Job],
    devices: int,
    width_plans: Sequence[WidthPlan],
    priorities: Sequence[float],
    *,
    narrow_first: bool = False,
    blocking: bool = False,
    limit: float = math.inf,
) -> Forecast | None:
    """Return the forecast of ``jobs`` on ``devices`` under ``width_plans``.

    The job with the smallest of ``priorities`` goes first. If ``narrow_first`` is True, every job
    whose width plan has two widths gets its narrow width at the start, before other jobs get any
    devices. If ``blocking`` is True, free devices are kept for the first job that cannot have its
    narrow width yet. That job may be a running job, which then waits at the end of its epoch.

    Return None if a job never gets its narrow width because there are too few devices. Return None
    also if not all jobs end before ``limit`` (seconds from now).
    """
    runs = [
        _Run(job, width_plan, job.epochs, job.held, job.last, width_plan.epochs == 0)
        for job, width_plan in zip(jobs, width_plans, strict=True)
    ]
    ranks = [0] * len(jobs)
    for rank, index in enumerate(sorted(range(len(jobs)), key=priorities.__getitem__)):
        ranks[index] = rank
    schedule = _Schedule(
        devices - sum(job.held for job in jobs),
        runs,
        ranks,
        [
            (job.boundary, index, False)
            for index, job in enumerate(jobs)
            if job.held or not job.epochs
        ],
    )
    heapq.heapify(schedule.heap)
    unstarted = [index for index, job in enumerate(jobs) if job.epochs and not job.held]
    waiting: list[int] = []  # by priority, the first job last
    while schedule.heap or unstarted:
        now = 0.0 if unstarted else schedule.heap[0][0]
        requesting = unstarted + _advance(schedule, now)
        unstarted = []
        if len(requesting) > 1:
            requesting.sort(key=ranks.__getitem__, reverse=True)
        if narrow_first:
            for index in reversed(requesting):
                _reserve_narrow(schedule, runs[index])
            narrow_first = False
        if requesting or (waiting and schedule.free):
            waiting = _allocate(schedule, now, requesting, waiting, blocking=blocking)
        if now <= _TIME_TOLERANCE:
            schedule.late = {runs[index].job.trial for index in waiting}
        if now >= limit or schedule.latest_end >= limit:
            return None
        if schedule.unscheduled:
            _push_next_requests(schedule)
    if waiting:
        return None
    completion = schedule.weighted_ends / math.fsum(job.weight for job in jobs)
    return Forecast(schedule.makespan, completion, schedule.widths, schedule.late)


def _allocate(
    schedule: _Schedule, now: float, requesting: list[int], waiting: list[int], *, blocking: bool
) -> list[int]:
    """Give free devices to jobs that request devices at ``now`` and to waiting jobs.

    ``requesting`` are the jobs at the end of an epoch and, at the start, the new jobs. Return the
    jobs that still wait. In both arguments and in the result, the job with the highest priority
    comes last.
    """
    runs, ranks, denied = schedule.runs, schedule.ranks, []
    while requesting or (waiting and schedule.free):
        from_waiting = waiting and schedule.free > 0
        if requesting and (not from_waiting or ranks[requesting[-1]] < ranks[waiting[-1]]):
            index = requesting.pop()
        else:
            index = waiting.pop()
        if not (schedule.free or runs[index].held) or not _request(
            schedule, index, now, blocking=blocking
        ):
            denied.append(index)
            if blocking:
                schedule.free += runs[index].held
                runs[index].held = 0
                denied += _continue_running(schedule, now, requesting)
                break
    if denied and waiting and ranks[denied[-1]] > ranks[waiting[-1]]:
        return sorted(waiting + denied, key=ranks.__getitem__, reverse=True)
    return waiting + denied[::-1]


def _continue_running(schedule: _Schedule, now: float, requesting: list[int]) -> list[int]:
    """Let the requesting jobs continue with the devices that they hold.

    Return the jobs that hold no devices, highest priority first.
    """
    free, schedule.free = schedule.free, 0
    idle = [
        index
        for index in reversed(requesting)
        if not _request(schedule, index, now, blocking=False)
    ]
    schedule.free = free
    return idle


def _advance(schedule: _Schedule, now: float) -> list[int]:
    """Handle the events at time ``now``, and return the jobs at the end of an epoch.

    Jobs that end free their devices.
    """
    heap, runs, requesting = schedule.heap, schedule.runs, []
    while heap and heap[0][0] <= now + _TIME_TOLERANCE:
        _, index, ends = heapq.heappop(heap)
        run = runs[index]
        if run.since is not None:
            run.left -= round((now - run.since) / run.job.seconds(run.held))
            run.since = None
        if ends or run.left <= 0:
            schedule.widths.setdefault(run.job.trial, run.held)
            schedule.free += run.held
            schedule.makespan = now
            schedule.weighted_ends += run.job.weight * now
            continue
        width = min(run.held, run.width_plan.narrow)
        schedule.free += run.held - width
        run.held = width
        requesting.append(index)
    return requesting


def _reserve_narrow(schedule: _Schedule, run: _Run) -> None:
    missing = run.width_plan.narrow - run.held
    if run.width_plan.epochs and 0 < missing <= schedule.free:
        schedule.free -= missing
        run.held += missing


def _request(schedule: _Schedule, index: int, now: float, *, blocking: bool) -> bool:
    """Give a job the free devices that it wants, or return False if the job must wait."""
    run = schedule.runs[index]
    job, width_plan = run.job, run.width_plan
    if not run.past_wide and width_plan.wide - run.held <= schedule.free:
        _widen(schedule, index, now)
        return True
    if width_plan.narrow - run.held <= schedule.free:
        schedule.free -= width_plan.narrow - run.held
        run.held = width_plan.narrow
        schedule.widths.setdefault(job.trial, run.held)
        begin = now + job.switch_cost(run.held, run.last)
        run.last = run.held
        if run.past_wide:
            end = begin + run.left * job.seconds(run.held)
            schedule.latest_end = max(schedule.latest_end, end)
            heapq.heappush(schedule.heap, (end, index, True))
        else:
            run.since = begin
            schedule.unscheduled.append(index)
        return True
    if blocking or not run.held:
        return False
    # It holds less than its narrow width, and continues with what it has.
    schedule.widths.setdefault(job.trial, run.held)
    run.since = now
    schedule.unscheduled.append(index)
    return True


def _widen(schedule: _Schedule, index: int, now: float) -> None:
    run = schedule.runs[index]
    job, width_plan = run.job, run.width_plan
    epochs = min(width_plan.epochs, run.left)
    if run.last == width_plan.narrow and run.left - epochs <= 1:
        epochs = run.left  # going back for one epoch is not worth it
    schedule.free -= width_plan.wide - run.held
    run.held = width_plan.wide
    schedule.widths.setdefault(job.trial, run.held)
    end = now + job.switch_cost(run.held, run.last) + epochs * job.seconds(run.held)
    run.last = run.held
    run.past_wide = True
    run.left -= epochs
    # What is left after that takes at least the time of its fastest epochs.
    schedule.latest_end = max(schedule.latest_end, end + run.left * job.fastest)
    heapq.heappush(schedule.heap, (end, index, run.left == 0))


def _push_next_requests(schedule: _Schedule) -> None:
    """Put the next request of each job that wants more devices on the heap.

    The request is due at the job's first boundary after the next event.
    """
    next_event = schedule.heap[0][0] if schedule.heap else math.inf
    for index in schedule.unscheduled:
        run = schedule.runs[index]
        assert run.since is not None
        epoch_seconds = run.job.seconds(run.held)
        epochs = run.left
        if next_event < math.inf:
            epochs = min(
                epochs,
                max(1, math.ceil((next_event - run.since) / epoch_seconds - _TIME_TOLERANCE)),
            )
        heapq.heappush(schedule.heap, (run.since + epochs * epoch_seconds, index, False))
    schedule.unscheduled.clear()
