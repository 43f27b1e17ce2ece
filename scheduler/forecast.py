"""What becomes of a plan: trials of known speed run by list scheduling, without events or a clock.

Theory of operation. A trial has a *course*: so many epochs at a wide width, the others at a narrow
one, or all of them at one width. Devices that become free go to the trials that want more, by
priority (list scheduling; Graham 1966), those that are at work at their next epoch's end. A trial
whose course is two widths begins wide if it can. Else it begins narrow, and is widened when devices
become free; where then its wide epochs are all that is left, it stays wide.

Only three things change who holds what: a trial ends, its wide part ends, or one that waits for
more devices is at an epoch's end. So a forecast takes some steps a trial, however many epochs that
is, and a policy can afford several of them.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from .courses import Course, Job

#: Times closer than this are one (seconds).
_TOGETHER = 1e-9


@dataclass(frozen=True, slots=True)
class Forecast:
    """When all have ended (seconds from now), and each trial's width from its next boundary on.

    ``completion`` is when they have ended on average, by their weights.
    ``late`` are the waiting trials that do not begin at once.
    """

    makespan: float
    completion: float
    widths: dict[str, int]
    late: set[str]


@dataclass(slots=True)
class _Run:
    """A job on its way: ``left`` epochs after the boundary, ``held`` devices, ``last`` width."""

    job: Job
    course: Course
    priority: tuple[float, int]
    left: int
    held: int
    last: int
    past_wide: bool = False
    since: float | None = None


@dataclass(slots=True)
class _Line:
    """The forecast at work: free devices, and a heap of (time, job, whether it ends then).

    ``ends`` is the weighted sum of the ends there were, ``latest`` the last of those that are
    foreseen.
    """

    free: int
    runs: list[_Run]
    heap: list[tuple[float, int, bool]]
    widths: dict[str, int] = field(default_factory=dict)
    makespan: float = 0.0
    ends: float = 0.0
    latest: float = 0.0
    narrow: list[int] = field(default_factory=list)
    late: set[str] = field(default_factory=set)


def forecast(
    jobs: Sequence[Job],
    devices: int,
    courses: Sequence[Course],
    priorities: Sequence[float],
    *,
    seated: bool = False,
    limit: float = math.inf,
) -> Forecast | None:
    """Run ``jobs`` on ``devices`` under ``courses``; a small priority goes first.

    ``seated``: at the beginning every course of two widths gets its narrow one before others get
    anything, for it has no time to wait. None where a job waits for ever, because its narrow width
    is more than there are devices, or where not all end before ``limit`` (seconds from now).
    """
    runs = [
        _Run(job, course, (priority, at), job.epochs, job.held, job.last, course.epochs == 0)
        for at, (job, course, priority) in enumerate(zip(jobs, courses, priorities, strict=True))
    ]
    line = _Line(
        devices - sum(job.held for job in jobs),
        runs,
        [(job.boundary, at, False) for at, job in enumerate(jobs)],
    )
    heapq.heapify(line.heap)
    waiting: list[int] = []  # by priority, the first one last
    while line.heap:
        now = line.heap[0][0]
        asking = _arrive(line, now)
        asking.sort(key=lambda at: runs[at].priority, reverse=True)
        if seated:
            for at in reversed(asking):
                _seat(line, runs[at])
            seated = False
        line.narrow = []
        waiting = _hand_out(line, now, asking, waiting)
        if now <= _TOGETHER:
            line.late = {runs[at].job.trial for at in waiting}
        if max(now, line.latest) >= limit:
            return None
        _look_again(line)
    if waiting:
        return None
    completion = line.ends / math.fsum(job.weight for job in jobs)
    return Forecast(line.makespan, completion, line.widths, line.late)


def _hand_out(line: _Line, now: float, asking: list[int], waiting: list[int]) -> list[int]:
    """Give free devices to those who ask at a boundary and who wait; returns who goes on waiting.

    Both are by priority, the first one last. Who waits holds nothing, so without free devices there
    is no need to ask them.
    """
    runs, passed = line.runs, []
    while asking or (waiting and line.free):
        from_waiting = bool(waiting) and line.free > 0
        if asking and (not from_waiting or runs[asking[-1]].priority < runs[waiting[-1]].priority):
            at = asking.pop()
        else:
            at = waiting.pop()
        if not _ask(line, at, now):
            passed.append(at)
    if passed and waiting and runs[passed[-1]].priority > runs[waiting[-1]].priority:
        return sorted(waiting + passed, key=lambda at: runs[at].priority, reverse=True)
    return waiting + passed[::-1]


def _arrive(line: _Line, now: float) -> list[int]:
    """Take what happens at ``now``: devices of those that end, and who is at a boundary."""
    asking = []
    while line.heap and line.heap[0][0] <= now + _TOGETHER:
        _, at, ends = heapq.heappop(line.heap)
        run = line.runs[at]
        if run.since is not None:
            run.left -= round((now - run.since) / run.job.seconds(run.held))
            run.since = None
        if ends or run.left <= 0:
            line.widths.setdefault(run.job.trial, run.held)
            line.free += run.held
            line.makespan = max(line.makespan, now)
            line.ends += run.job.weight * now
            continue
        kept = min(run.held, run.course.narrow)
        line.free += run.held - kept
        run.held = kept
        asking.append(at)
    return asking


def _seat(line: _Line, run: _Run) -> None:
    lacking = run.course.narrow - run.held
    if run.course.epochs and 0 < lacking <= line.free:
        line.free -= lacking
        run.held += lacking


def _ask(line: _Line, at: int, now: float) -> bool:
    """Give a job what it wants of the free devices; False where it goes on waiting."""
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
    if not run.held:
        return False
    # It holds less than its narrow width: on with what it has.
    line.widths.setdefault(job.trial, run.held)
    run.since = now
    line.narrow.append(at)
    return True


def _widen(line: _Line, at: int, now: float) -> None:
    run = line.runs[at]
    job, course = run.job, run.course
    epochs = min(course.epochs, run.left)
    if run.last == course.narrow and run.left - epochs <= 1:
        epochs = run.left  # to go back for one epoch is not worth it
    line.free -= course.wide - run.held
    run.held = course.wide
    line.widths.setdefault(job.trial, run.held)
    end = now + job.switch(run.held, run.last) + epochs * job.seconds(run.held)
    run.last = run.held
    run.past_wide = True
    run.left -= epochs
    # What is left after that takes its fastest epochs at least.
    line.latest = max(line.latest, end + run.left * job.fastest)
    heapq.heappush(line.heap, (end, at, run.left == 0))


def _look_again(line: _Line) -> None:
    """Those that want more look again at their first boundary after the next event."""
    upcoming = line.heap[0][0] if line.heap else math.inf
    for at in line.narrow:
        run = line.runs[at]
        assert run.since is not None
        each = run.job.seconds(run.held)
        epochs = run.left
        if upcoming < math.inf:
            epochs = min(epochs, max(1, math.ceil((upcoming - run.since) / each - _TOGETHER)))
        heapq.heappush(line.heap, (run.since + epochs * each, at, False))
