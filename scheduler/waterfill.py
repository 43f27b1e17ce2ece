"""Policy: water-filling on speed curves, each plan tried out in forecasts before it stands.

Theory of operation. The fluid bound says when all work could end were trials divisible at will
(``bounds``). For a target T at or above it each trial has a cheapest *course* in whole epochs that
ends by T, the price of resizes counted: all of it at one width, or a part at each of two
neighbouring breakpoints of its hull. Together the courses are a demand of device-seconds, and list
scheduling (``forecast``) says when they really end: later than T where they do not fit together.
So several targets and priorities are tried, the lowest targets first, then some between the bound
and the best plan found, and the plan with the earliest end is taken. The standing plan is among
the candidates: another is taken only where its forecast is better, which keeps trials from being
resized to and fro.

What the forecast assumes is what the engine does: devices that become free go to waiting trials by
priority, and one that is at work changes its width at the end of an epoch. As long as the estimates
hold, each new plan is at least as good as the one before.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from .bounds import fluid_bound
from .courses import Course, Job, cheapest_course, curve_of, steady
from .forecast import Forecast, forecast
from .snapshot import Candidate, Plan, Snapshot
from .spread import LONG_ENOUGH

#: Targets over the bound that are tried until one of them holds.
_TARGETS = (
    *(1.0, 1.003, 1.007, 1.012, 1.02, 1.03, 1.045, 1.06, 1.08, 1.11, 1.15, 1.2, 1.3, 1.4, 1.6),
    *(1.8, 2.1, 2.5, 3.0, 4.0, 6.0, 10.0),
)
#: Targets between the bound and the best plan that are tried afterwards.
_BETWEEN = 12
#: Trials times forecasts of one plan: of many trials fewer plans are tried, and lose less by it.
_EFFORT = 2500
#: Rules that are tried at every target over the bound.
_FIRST = ("start, seated", "start", "longest")
#: Those that are tried in turn between the bound and the best plan.
_THEN = ("start", "start, seated", "longest", "longest, seated", "largest")
#: How much the mean completion counts beside the makespan where results decide what follows.
_COMPLETION = 0.85
#: The shape of what is not to be widened.
_ONE = ((1, 1.0),)
#: A plan that ends within this much of the bound is good enough.
_NEAR = 1.002
#: Idle devices widen a trial where that saves more than so many times the price of the resize.
_WORTH = 2.0


class Rule(NamedTuple):
    """Who goes first: a small priority by job, course and target; ``seated`` as in ``forecast``."""

    priority: Callable[[Job, Course, float], float]
    seated: bool


def _duration(job: Job, course: Course) -> float:
    """Seconds of what the course asks for: its wide part, or all of it."""
    if course.epochs:
        return course.epochs * job.seconds(course.wide)
    return job.epochs * job.seconds(course.narrow)


def _start(job: Job, course: Course, target: float) -> float:
    """When it must begin to end in time; who is at work goes on."""
    return target - _duration(job, course) - (1e-6 * target if job.held else 0.0)


def _longest(job: Job, course: Course, target: float) -> float:
    return -_duration(job, course)


def _shortest(job: Job, course: Course, target: float) -> float:
    """Smith's rule: the least mean completion, by weights, of one at a time."""
    return _duration(job, course) / job.weight


def _largest(job: Job, course: Course, target: float) -> float:
    return -_duration(job, course) * course.wide


RULES = {
    "start": Rule(_start, seated=False),
    "start, seated": Rule(_start, seated=True),
    "longest": Rule(_longest, seated=False),
    "longest, seated": Rule(_longest, seated=True),
    "largest": Rule(_largest, seated=False),
    "shortest": Rule(_shortest, seated=False),
}


class Aim(NamedTuple):
    """What is to be small: the makespan, or in part (``completion``) the mean completion.

    ``rules`` are those that are tried at every target over the bound.
    """

    completion: float
    rules: tuple[str, ...]

    def cost(self, found: Forecast) -> float:
        """Seconds."""
        return found.makespan + self.completion * (found.completion - found.makespan)

    def limit(self, cost: float) -> float:
        """What ends later than so costs more."""
        return cost / (1.0 - self.completion)


MAKESPAN = Aim(0.0, _FIRST)
PROGRESS = Aim(_COMPLETION, (*_FIRST, "shortest"))


@dataclass(frozen=True, slots=True)
class Draft:
    """A plan as tried out: courses and rule, and what the forecast gives."""

    courses: tuple[Course, ...]
    rule: str
    target: float
    forecast: Forecast


def drafts(
    jobs: Sequence[Job], devices: int, aim: Aim = MAKESPAN, best: float = math.inf
) -> Iterator[Draft]:
    """Plans of ``jobs`` that cost less than ``best`` (seconds), each less than the one before.

    The first that are tried have all at the width that they have, or their narrowest.
    """
    longest = max(job.boundary + job.epochs * job.fastest for job in jobs)
    bound = max(longest, fluid_bound([(job.work, job.curve.hull) for job in jobs], devices))
    as_they_are = [steady(job.held or job.curve.widths[0]) for job in jobs]
    for rule in ("longest", "shortest") if aim.completion else ("longest",):
        plain = draft_of(jobs, devices, as_they_are, rule, bound)
        if plain is not None and aim.cost(plain.forecast) < best * (1 - 1e-9):
            best = aim.cost(plain.forecast)
            yield plain
    if all(len(job.curve.widths) == 1 for job in jobs):
        return
    tries = max(3, min(4 * (len(_TARGETS) + _BETWEEN), _EFFORT // len(jobs)))

    def tried(target: float, rules: Sequence[str]) -> Iterator[Draft]:
        nonlocal best, tries
        courses = _courses(jobs, devices, target)
        for rule in rules if courses else ():
            tries -= 1
            limit = aim.limit(best) * (1 - 1e-9)
            draft = draft_of(jobs, devices, courses, rule, target, limit=limit)
            if draft is not None and aim.cost(draft.forecast) < best * (1 - 1e-9):
                best = aim.cost(draft.forecast)
                yield draft

    for over in _TARGETS:
        if tries <= 0 or bound * over > aim.limit(best):
            break
        yield from tried(bound * over, aim.rules)
    for k in range(1, _BETWEEN + 1):
        if tries <= 0 or best <= bound * _NEAR:
            break
        target = bound + (best - bound) * k / (_BETWEEN + 1)
        yield from tried(target, (_THEN[k % len(_THEN)],))


def draft_of(
    jobs: Sequence[Job],
    devices: int,
    courses: Sequence[Course],
    rule: str,
    target: float,
    *,
    limit: float = math.inf,
) -> Draft | None:
    """``courses`` tried out; None where they cannot all run, or not all end before ``limit``."""
    priority, seated = RULES[rule]
    priorities = [priority(job, course, target) for job, course in zip(jobs, courses, strict=True)]
    found = forecast(jobs, devices, courses, priorities, seated=seated, limit=limit)
    return None if found is None else Draft(tuple(courses), rule, target, found)


def _courses(jobs: Sequence[Job], devices: int, target: float) -> tuple[Course, ...]:
    """The cheapest courses that end by ``target``; none where one cannot, or all are too much."""
    area = sum(job.boundary * job.held for job in jobs)
    most = devices * target * (1 + 1e-9)
    found = []
    for job in jobs:
        cheapest = cheapest_course(job, target)
        if cheapest is None:
            return ()
        area += cheapest[0]
        if area > most:
            return ()
        found.append(cheapest[1])
    return tuple(found)


def waterfill(snapshot: Snapshot) -> Plan:
    """The best draft, or the standing plan where none is better."""
    both = (*snapshot.running, *snapshot.waiting)
    if not both or not snapshot.devices:
        return Plan(tuple(each.trial for each in snapshot.waiting))
    guess = _typical(both)
    jobs = [
        _job(each, snapshot, running=at < len(snapshot.running), guess=guess)
        for at, each in enumerate(both)
    ]
    best = _standing(snapshot, both, jobs)
    aim = PROGRESS if snapshot.staged else MAKESPAN
    before = math.inf if best is None else aim.cost(best.forecast)
    for draft in drafts(jobs, snapshot.devices, aim, before):
        best = draft
    assert best is not None  # all as they are is a plan, and can run
    return _plan(snapshot, jobs, _with_leftovers(jobs, snapshot.devices, best))


def _with_leftovers(jobs: Sequence[Job], devices: int, best: Draft) -> Draft:
    """``best`` with the devices that it leaves idle, as long as its forecast ends no later.

    Were the estimates true, nothing would be gained. They are not, and who turns out to be longer
    than foretold is then further on. The trial that has longest to go is widened first.
    """
    granted = _granted(jobs, devices, best)
    while granted:
        courses = list(best.courses)
        for at, width in granted:
            courses[at] = steady(width)
        draft = draft_of(
            jobs,
            devices,
            courses,
            best.rule,
            best.target,
            limit=best.forecast.makespan * (1 + 1e-9),
        )
        if draft is not None:
            return draft
        granted = granted[: len(granted) // 2]
    return best


def _granted(jobs: Sequence[Job], devices: int, best: Draft) -> list[tuple[int, int]]:
    """(job, width) by which idle devices are put to use, in the order of handing out."""
    widths = best.forecast.widths
    begun = [at for at, job in enumerate(jobs) if job.trial not in best.forecast.late]
    spare = devices - sum(max(jobs[at].held, widths[jobs[at].trial]) for at in begun)
    granted: list[tuple[int, int]] = []
    line = [
        (-jobs[at].epochs * jobs[at].seconds(widths[jobs[at].trial]), at, widths[jobs[at].trial])
        for at in begun
        if jobs[at].epochs
    ]
    heapq.heapify(line)
    while spare > 0 and line:
        left, at, width = heapq.heappop(line)
        job = jobs[at]
        wider = next((edge for edge in job.curve.breakpoints if edge > width), None)
        if wider is None:
            continue
        if wider - width > spare:
            wider = job.curve.widths[bisect_right(job.curve.widths, width + spare) - 1]
            if wider <= width:
                continue
        less = job.epochs * job.seconds(wider)
        if -left - less <= _WORTH * job.switch(wider, job.last):
            continue
        spare -= wider - width
        granted.append((at, wider))
        heapq.heappush(line, (-less, at, wider))
    return granted


def _typical(candidates: Sequence[Candidate]) -> float:
    """Seconds an epoch assumed of a trial of a study without a measured one: the median."""
    known = sorted(each.level for each in candidates if each.level is not None)
    return known[len(known) // 2] if known else 1.0


def _job(each: Candidate, snapshot: Snapshot, *, running: bool, guess: float) -> Job:
    # Short epochs do not pay for the exchange between devices.
    elastic = each.level is None or each.level >= LONG_ENOUGH
    return Job(
        trial=each.trial,
        epochs=each.target - each.epoch - running,
        boundary=each.boundary if running else 0.0,
        held=each.width if running else 0,
        last=each.width,
        level=guess if each.level is None else each.level,
        curve=curve_of(each.shape if elastic else _ONE, snapshot.devices, each.width),
        price=snapshot.resize,
        weight=each.promise,
    )


def _standing(
    snapshot: Snapshot, candidates: Sequence[Candidate], jobs: Sequence[Job]
) -> Draft | None:
    """The standing plan gone on with; None where there is none for all trials."""
    if snapshot.rule not in RULES:
        return None
    courses = []
    for each, job in zip(candidates, jobs, strict=True):
        course = each.course
        if course is None or not {course.narrow, course.wide} <= job.curve.factor.keys():
            return None
        if job.held == course.wide and course.epochs:
            course = Course(course.narrow, course.wide, course.epochs - 1)
        courses.append(course if course.epochs else steady(course.narrow))
    return draft_of(jobs, snapshot.devices, courses, snapshot.rule, snapshot.deadline - snapshot.at)


def _plan(snapshot: Snapshot, jobs: Sequence[Job], best: Draft) -> Plan:
    given = dict(
        zip((job.trial for job in jobs), zip(jobs, best.courses, strict=True), strict=True)
    )
    rule = RULES[best.rule].priority
    # Who begins at once goes before who waits: the forecast has a place for all of them.
    waiting = sorted(
        snapshot.waiting,
        key=lambda each: (
            each.trial in best.forecast.late,
            rule(*given[each.trial], best.target),
        ),
    )
    courses = {}
    for trial, (job, course) in given.items():
        # The epoch that it is in counts as well, in the engine's books.
        begun = course.epochs > 0 and job.held == course.wide
        courses[trial] = course._replace(epochs=course.epochs + begun)
    return Plan(
        tuple(each.trial for each in waiting),
        best.forecast.widths,
        courses=courses,
        rule=best.rule,
        deadline=snapshot.at + best.target,
    )
