"""Policy ``waterfill``: water-filling on speed curves, with every plan checked by a forecast.

Theory of operation. The fluid bound is the earliest time at which all work could end if trials
could be divided at will (``planner.bounds``). Candidate plans are made for targets above it: width
plans that end by the target, and orders in which devices are handed out. Each is checked by a
forecast, and the best is taken (``planner.candidates``). The standing plan is a candidate as well.
Another plan replaces it only if its forecast is better, which keeps trials from being resized back
and forth. If results decide what follows (rungs, the intervals of ``pbt``), early ends of trials
count as well, weighted by promotion probability (``strategies.promotion``).

The forecast assumes what the engine does: devices that become free go to waiting trials by
priority, and a running trial changes its width at the end of an epoch. As long as the estimates
hold, each new plan is at least as good as the one before.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_right
from collections.abc import Sequence

from ..model.snapshot import Candidate, Course, Plan, Snapshot, steady
from .planner.candidates import MAKESPAN, PROGRESS, RULES, Draft, draft_of, drafts
from .planner.explore import width_to_try
from .planner.widen import LONG_ENOUGH
from .planner.width_plan import Job, curve_of

#: The shape of a trial that is not to be widened.
_ONE = ((1, 1.0),)
#: Idle devices widen a trial if that saves more than so many times the price of the resize.
_WORTH = 2.0


def waterfill(snapshot: Snapshot) -> Plan:
    """The best candidate plan, or the standing plan if none is better."""
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
    assert best is not None  # leaving all widths as they are is a plan that can run
    best = _with_leftovers(jobs, snapshot.devices, best)
    plan = _plan(snapshot, jobs, best)
    if (tried := width_to_try(both, jobs, snapshot.devices, best.forecast)) is not None:
        trial, course = tried
        plan.widths[trial], plan.courses[trial] = course.wide, course
    return plan


def _with_leftovers(jobs: Sequence[Job], devices: int, best: Draft) -> Draft:
    """``best`` with the devices that it leaves idle, as long as its forecast ends no later.

    With exact estimates nothing would be gained. With real ones, a trial that takes longer than
    foretold has made more progress by then. The trial with the most work left is widened first.
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
    """(job, width) pairs that put idle devices to use, in the order of handing out."""
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
    """Seconds an epoch for trials of a study without measurements: the median of the others."""
    known = sorted(each.level for each in candidates if each.level is not None)
    return known[len(known) // 2] if known else 1.0


def _job(each: Candidate, snapshot: Snapshot, *, running: bool, guess: float) -> Job:
    # Short epochs do not repay the exchange between devices.
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
    """The standing plan, continued; None if it does not cover all trials."""
    if snapshot.rule not in RULES:
        return None
    courses = []
    for each, job in zip(candidates, jobs, strict=True):
        course = each.course
        if course is not None and course.wide not in job.curve.factor:
            course = steady(course.narrow)  # others have arrived since it was to explore
        if course is None or course.narrow not in job.curve.factor:
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
    # Trials that begin at once go first: the forecast has a place for all of them.
    waiting = sorted(
        snapshot.waiting,
        key=lambda each: (
            each.trial in best.forecast.late,
            rule(*given[each.trial], best.target),
        ),
    )
    courses = {}
    for trial, (job, course) in given.items():
        # The engine counts the current epoch as well.
        begun = course.epochs > 0 and job.held == course.wide
        courses[trial] = course._replace(epochs=course.epochs + begun)
    return Plan(
        tuple(each.trial for each in waiting),
        best.forecast.widths,
        patient=RULES[best.rule].patient,
        courses=courses,
        rule=best.rule,
        deadline=snapshot.at + best.target,
    )
