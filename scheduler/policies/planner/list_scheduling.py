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

from ...model.snapshot import Course
from .width_plan import Job

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
    left: int
    held: int
    last: int
    past_wide: bool = False
    since: float | None = None


@dataclass(slots=True)
class _Line:
    """The forecast at work: free devices, and a heap of (time, job, whether it ends then).

    ``ranks`` are the jobs' places by priority. ``ends`` is the weighted sum of the ends there
    were, ``latest`` the last of those that are foreseen; ``narrow`` are to look again.
    """

    free: int
    runs: list[_Run]
    ranks: list[int]
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
    patient: bool = False,
    limit: float = math.inf,
) -> Forecast | None:
    """Run ``jobs`` on ``devices`` under ``courses``; a small priority goes first.

    ``seated``: at the beginning every course of two widths gets its narrow one before others get
    anything, for it has no time to wait. ``patient``: one that cannot have its narrow width yet has
    what becomes free kept for it, also one at work, which then waits for it at its boundary. None
    where a job waits for ever, because its narrow width is more than there are devices, or where
    not all end before ``limit`` (seconds from now).
    """
    runs = [
        _Run(job, course, job.epochs, job.held, job.last, course.epochs == 0)
        for job, course in zip(jobs, courses, strict=True)
    ]
    ranks = [0] * len(jobs)
    for place, at in enumerate(sorted(range(len(jobs)), key=priorities.__getitem__)):
        ranks[at] = place
    line = _Line(
        devices - sum(job.held for job in jobs),
        runs,
        ranks,
        [(job.boundary, at, False) for at, job in enumerate(jobs) if job.held or not job.epochs],
    )
    heapq.heapify(line.heap)
    fresh = [at for at, job in enumerate(jobs) if job.epochs and not job.held]
    waiting: list[int] = []  # by priority, the first one last
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
    line: _Line, now: float, asking: list[int], waiting: list[int], *, patient: bool
) -> list[int]:
    """Give free devices to those who ask at a boundary and who wait; returns who goes on waiting.

    Both are by priority, the first one last. Who waits holds nothing, so without free devices there
    is no need to ask them.
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


def _go_on(line: _Line, now: float, asking: list[int]) -> list[int]:
    """Have those who ask go on with what they hold; returns who holds nothing, by priority."""
    free, line.free = line.free, 0
    idle = [at for at in reversed(asking) if not _ask(line, at, now, patient=False)]
    line.free = free
    return idle


def _arrive(line: _Line, now: float) -> list[int]:
    """Take what happens at ``now``: devices of those that end, and who is at a boundary."""
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


def _seat(line: _Line, run: _Run) -> None:
    lacking = run.course.narrow - run.held
    if run.course.epochs and 0 < lacking <= line.free:
        line.free -= lacking
        run.held += lacking


def _ask(line: _Line, at: int, now: float, *, patient: bool) -> bool:
    """Give a job what it wants of the free devices; False where it waits for its narrow width."""
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
    line.narrow.clear()
