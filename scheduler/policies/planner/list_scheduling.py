"""Forecasts of plans: trials of known speed are run by list scheduling, without events or a clock.

Theory of operation. A trial has a *width plan*: some epochs at a wide width and the others at a
narrow one, or all of them at one width. Devices that become free go by priority to the trials that
want more (list scheduling; Graham 1966); a running trial gets them at the end of its epoch. A trial
whose width plan has two widths begins wide if it can. Otherwise it begins narrow, and is widened
when devices become free. If only its wide epochs are left then, it stays wide.

Only three things change which trial holds which devices: a trial ends, its wide part ends, or a
trial that waits for more devices ends an epoch. So a forecast takes a few steps a trial, however
many epochs that is, and a policy can afford several forecasts.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from ...model.snapshot import Course
from .width_plan import Job

#: Times closer than this are equal (seconds).
_TOGETHER = 1e-9


@dataclass(frozen=True, slots=True)
class Forecast:
    """When all trials have ended (seconds from now), and their widths.

    ``completion`` is the weighted mean of their ends (seconds from now). ``widths`` holds each
    trial's width from its next boundary on. ``late`` are the waiting trials that do not begin at
    once.
    """

    makespan: float
    completion: float
    widths: dict[str, int]
    late: set[str]


@dataclass(slots=True)
class _Run:
    """A job in the forecast."""

    #: The job.
    job: Job
    #: Its width plan.
    course: Course
    #: Epochs left after the boundary.
    left: int
    #: How many devices it holds.
    held: int
    #: The width that it last ran at.
    last: int
    #: Whether its wide part is over.
    past_wide: bool = False
    #: When it began to run at a width that may still change (seconds from now); None otherwise.
    since: float | None = None


@dataclass(slots=True)
class _Schedule:
    """The state of a forecast. Times are in seconds from now."""

    #: How many devices are free.
    free: int
    #: The jobs.
    runs: list[_Run]
    #: The jobs' positions by priority.
    ranks: list[int]
    #: Events: (time, job, whether the job ends then).
    heap: list[tuple[float, int, bool]]
    #: Each trial's width from its next boundary on.
    widths: dict[str, int] = field(default_factory=dict)
    #: When the last job ended so far.
    makespan: float = 0.0
    #: The weighted sum of the ends so far.
    ends: float = 0.0
    #: The last end that is foreseen.
    latest: float = 0.0
    #: Jobs whose next look for more devices is yet to be put on the heap.
    narrow: list[int] = field(default_factory=list)
    #: Waiting trials that do not begin at once.
    late: set[str] = field(default_factory=set)


def forecast(
    jobs: Sequence[Job],
    devices: int,
    courses: Sequence[Course],
    priorities: Sequence[float],
    *,
    seated: bool = False,
    patient: bool = False,
    limit: float = math.inf,
) -> Forecast | None:
    """Run ``jobs`` on ``devices`` under ``courses``. A small priority goes first.

    ``seated``: at the beginning every width plan with two widths gets its narrow width before other
    jobs get anything, since it has no time to wait. ``patient``: free devices are kept for the
    first job that cannot have its narrow width yet. This includes a running job, which then waits
    at its boundary.

    The result is None if a job waits for ever, because its narrow width is more than there are
    devices, or if not all jobs end before ``limit`` (seconds from now).
    """
    runs = [
        _Run(job, course, job.epochs, job.held, job.last, course.epochs == 0)
        for job, course in zip(jobs, courses, strict=True)
    ]
    ranks = [0] * len(jobs)
    for place, at in enumerate(sorted(range(len(jobs)), key=priorities.__getitem__)):
        ranks[at] = place
    line = _Schedule(
        devices - sum(job.held for job in jobs),
        runs,
        ranks,
        [(job.boundary, at, False) for at, job in enumerate(jobs) if job.held or not job.epochs],
    )
    heapq.heapify(line.heap)
    fresh = [at for at, job in enumerate(jobs) if job.epochs and not job.held]
    waiting: list[int] = []  # by priority, the first job last
    while line.heap or fresh:
        now = 0.0 if fresh else line.heap[0][0]
        asking = fresh + _arrive(line, now)
        fresh = []
        if len(asking) > 1:
            asking.sort(key=ranks.__getitem__, reverse=True)
        if seated:
            for at in reversed(asking):
                _seat(line, runs[at])
            seated = False
        if asking or (waiting and line.free):
            waiting = _hand_out(line, now, asking, waiting, patient=patient)
        if now <= _TOGETHER:
            line.late = {runs[at].job.trial for at in waiting}
        if now >= limit or line.latest >= limit:
            return None
        if line.narrow:
            _look_again(line)
    if waiting:
        return None
    completion = line.ends / math.fsum(job.weight for job in jobs)
    return Forecast(line.makespan, completion, line.widths, line.late)


def _hand_out(
    line: _Schedule, now: float, asking: list[int], waiting: list[int], *, patient: bool
) -> list[int]:
    """Give free devices to jobs at a boundary and to waiting jobs; returns the jobs that still
    wait.

    Both lists are by priority, the first job last. Waiting jobs hold nothing, so they need not be
    asked without free devices.
    """
    runs, ranks, passed = line.runs, line.ranks, []
    while asking or (waiting and line.free):
        from_waiting = waiting and line.free > 0
        if asking and (not from_waiting or ranks[asking[-1]] < ranks[waiting[-1]]):
            at = asking.pop()
        else:
            at = waiting.pop()
        if not (line.free or runs[at].held) or not _ask(line, at, now, patient=patient):
            passed.append(at)
            if patient:
                line.free += runs[at].held
                runs[at].held = 0
                passed += _go_on(line, now, asking)
                break
    if passed and waiting and ranks[passed[-1]] > ranks[waiting[-1]]:
        return sorted(waiting + passed, key=ranks.__getitem__, reverse=True)
    return waiting + passed[::-1]


def _go_on(line: _Schedule, now: float, asking: list[int]) -> list[int]:
    """Have the asking jobs continue with what they hold; returns those that hold nothing, by
    priority.
    """
    free, line.free = line.free, 0
    idle = [at for at in reversed(asking) if not _ask(line, at, now, patient=False)]
    line.free = free
    return idle


def _arrive(line: _Schedule, now: float) -> list[int]:
    """Take in what happens at ``now``: jobs that end free their devices; returns jobs at a
    boundary.
    """
    heap, runs, asking = line.heap, line.runs, []
    while heap and heap[0][0] <= now + _TOGETHER:
        _, at, ends = heapq.heappop(heap)
        run = runs[at]
        if run.since is not None:
            run.left -= round((now - run.since) / run.job.seconds(run.held))
            run.since = None
        if ends or run.left <= 0:
            line.widths.setdefault(run.job.trial, run.held)
            line.free += run.held
            line.makespan = now
            line.ends += run.job.weight * now
            continue
        kept = min(run.held, run.course.narrow)
        line.free += run.held - kept
        run.held = kept
        asking.append(at)
    return asking


def _seat(line: _Schedule, run: _Run) -> None:
    lacking = run.course.narrow - run.held
    if run.course.epochs and 0 < lacking <= line.free:
        line.free -= lacking
        run.held += lacking


def _ask(line: _Schedule, at: int, now: float, *, patient: bool) -> bool:
    """Give a job the free devices that it wants; False if it waits for its narrow width."""
    run = line.runs[at]
    job, course = run.job, run.course
    if not run.past_wide and course.wide - run.held <= line.free:
        _widen(line, at, now)
        return True
    if course.narrow - run.held <= line.free:
        line.free -= course.narrow - run.held
        run.held = course.narrow
        line.widths.setdefault(job.trial, run.held)
        begin = now + job.switch(run.held, run.last)
        run.last = run.held
        if run.past_wide:
            end = begin + run.left * job.seconds(run.held)
            line.latest = max(line.latest, end)
            heapq.heappush(line.heap, (end, at, True))
        else:
            run.since = begin
            line.narrow.append(at)
        return True
    if patient or not run.held:
        return False
    # It holds less than its narrow width, and continues with what it has.
    line.widths.setdefault(job.trial, run.held)
    run.since = now
    line.narrow.append(at)
    return True


def _widen(line: _Schedule, at: int, now: float) -> None:
    run = line.runs[at]
    job, course = run.job, run.course
    epochs = min(course.epochs, run.left)
    if run.last == course.narrow and run.left - epochs <= 1:
        epochs = run.left  # going back for one epoch is not worth it
    line.free -= course.wide - run.held
    run.held = course.wide
    line.widths.setdefault(job.trial, run.held)
    end = now + job.switch(run.held, run.last) + epochs * job.seconds(run.held)
    run.last = run.held
    run.past_wide = True
    run.left -= epochs
    # What is left after that takes at least the time of its fastest epochs.
    line.latest = max(line.latest, end + run.left * job.fastest)
    heapq.heappush(line.heap, (end, at, run.left == 0))


def _look_again(line: _Schedule) -> None:
    """Put the next look of jobs that want more on the heap: their first boundary after the next
    event.
    """
    upcoming = line.heap[0][0] if line.heap else math.inf
    for at in line.narrow:
        run = line.runs[at]
        assert run.since is not None
        each = run.job.seconds(run.held)
        epochs = run.left
        if upcoming < math.inf:
            epochs = min(epochs, max(1, math.ceil((upcoming - run.since) / each - _TOGETHER)))
        heapq.heappush(line.heap, (run.since + epochs * each, at, False))
    line.narrow.clear()
