"""Candidate plans: width plans and an order for one target after another, checked by forecasts.

Theory of operation. For a target T at or above the fluid bound, each job has a cheapest *width
plan* in whole epochs that ends by T, with the price of resizes: all of it at one width, or a part
at each of two adjacent breakpoints of its hull. Together the width plans demand some
device-seconds, and list scheduling (``list_scheduling``) says when they really end: later than T if
they do not fit together. So several targets and orders are tried, the lowest targets first, then
some between the bound and the best candidate found. The goal (``Aim``) is an early end of all
trials, or also of each one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ...model.snapshot import Course, steady
from .bounds import fluid_bound
from .list_scheduling import Forecast, forecast
from .width_plan import Job, cheapest_course

#: Targets, as multiples of the bound, that are tried until one of them holds.
_TARGETS = (
    *(1.0, 1.003, 1.007, 1.012, 1.02, 1.03, 1.045, 1.06, 1.08, 1.11, 1.15, 1.2, 1.3, 1.4, 1.6),
    *(1.8, 2.1, 2.5, 3.0, 4.0, 6.0, 10.0),
)
#: How many targets between the bound and the best plan are tried afterwards.
_BETWEEN = 12
#: Trials times forecasts for one plan: with many trials fewer plans are tried, and less is lost.
_EFFORT = 2500
#: The rules tried at every target over the bound.
_FIRST = ("start, seated", "start", "longest", "start, patient")
#: The rules tried in turn at targets between the bound and the best plan.
_THEN = ("start", "start, seated", "longest", "longest, seated", "largest")
#: How much the mean completion counts beside the makespan, if results decide what follows.
_COMPLETION = 0.85
#: A plan that ends within this much of the bound is good enough.
_NEAR = 1.002


class Rule(NamedTuple):
    """An order of trials: a small priority, by job, width plan and target, goes first.

    The other fields are as in ``list_scheduling.forecast``.
    """

    priority: Callable[[Job, Course, float], float]
    seated: bool
    patient: bool = False


def _duration(job: Job, course: Course) -> float:
    """Seconds that the width plan takes: its wide part, or all of it."""
    if course.epochs:
        return course.epochs * job.seconds(course.wide)
    return job.epochs * job.seconds(course.narrow)


def _start(job: Job, course: Course, target: float) -> float:
    """The latest start with which it ends in time. On a tie, a running job goes first."""
    return target - _duration(job, course) - (1e-6 * target if job.held else 0.0)


def _longest(job: Job, course: Course, target: float) -> float:
    return -_duration(job, course)


def _shortest(job: Job, course: Course, target: float) -> float:
    """Smith's rule: it minimises the weighted mean completion of jobs that run one at a time."""
    return _duration(job, course) / job.weight


def _largest(job: Job, course: Course, target: float) -> float:
    return -_duration(job, course) * course.wide


RULES = {
    "start": Rule(_start, seated=False),
    "start, seated": Rule(_start, seated=True),
    "start, patient": Rule(_start, seated=False, patient=True),
    "longest": Rule(_longest, seated=False),
    "longest, seated": Rule(_longest, seated=True),
    "largest": Rule(_largest, seated=False),
    "shortest": Rule(_shortest, seated=False),
}


class Aim(NamedTuple):
    """What is minimised: the makespan, or partly (``completion``) the mean completion.

    ``rules`` are tried at every target over the bound.
    """

    completion: float
    rules: tuple[str, ...]

    def cost(self, found: Forecast) -> float:
        """The cost of a forecast (seconds)."""
        return found.makespan + self.completion * (found.completion - found.makespan)

    def limit(self, cost: float) -> float:
        """The makespan (seconds) above which a plan costs more than ``cost``."""
        return cost / (1.0 - self.completion)


MAKESPAN = Aim(0.0, _FIRST)
PROGRESS = Aim(_COMPLETION, (*_FIRST, "shortest"))


@dataclass(frozen=True, slots=True)
class Draft:
    """A candidate plan: width plans and rule, and what the forecast gives."""

    courses: tuple[Course, ...]
    rule: str
    target: float
    forecast: Forecast


def drafts(
    jobs: Sequence[Job], devices: int, aim: Aim = MAKESPAN, best: float = math.inf
) -> Iterator[Draft]:
    """Plans of ``jobs`` that cost less than ``best`` (seconds), each less than the one before.

    The first plans keep every job at its present width, or give it its narrowest.
    """
    longest = max(job.boundary + job.epochs * job.fastest for job in jobs)
    bound = max(longest, fluid_bound([(job.work, job.curve.hull) for job in jobs], devices))
    as_they_are = [steady(job.held or job.curve.widths[0]) for job in jobs]
    # Jobs with equal weight take turns: with the shortest first, some might never begin (PBT).
    unequal = aim.completion and len({job.weight for job in jobs}) > 1
    for rule in ("longest", "shortest") if unequal else ("longest",):
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
    """A plan with these ``courses``; None if they cannot all run and end before ``limit``."""
    priority, seated, patient = RULES[rule]
    priorities = [priority(job, course, target) for job, course in zip(jobs, courses, strict=True)]
    found = forecast(
        jobs, devices, courses, priorities, seated=seated, patient=patient, limit=limit
    )
    return None if found is None else Draft(tuple(courses), rule, target, found)


def _courses(jobs: Sequence[Job], devices: int, target: float) -> tuple[Course, ...]:
    """The cheapest width plans that end by ``target``.

    Empty if a job cannot end by then, or if together they need too many device-seconds.
    """
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
