"""Policy ``waterfill``: water-filling on speed curves, with every plan checked by a forecast.

Theory of operation. The fluid bound is the earliest time at which all work could end if trials
could be divided at will (``planner.bounds``). Candidate plans are made for targets above it: width
plans that end by the target, and orders in which devices are handed out. Each is checked by a
forecast, and the best is taken (``planner.candidates``). The standing plan is a candidate as well.
Another plan replaces it only if its forecast is better, which keeps trials from being resized back
and forth. If later work depends on results (rungs, the intervals of ``pbt``), early ends of trials
count as well, weighted by promotion probability (``strategies.promotion``).

If no width is sure to be faster than one device, only the order is left to plan. Then the plan is
that of ``longest_first``, unless later work depends on results.

The forecast assumes the engine's behaviour: devices that become free go to waiting trials by
priority, and a running trial changes its width at the end of an epoch. As long as the estimates
hold, each new plan is at least as good as the one before.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence

from ..model.snapshot import Candidate, Plan, Snapshot, WidthPlan, steady
from .longest_first import longest_first
from .planner.candidates import (
    MAKESPAN,
    PROGRESS,
    RULES,
    CandidatePlan,
    candidate_plan,
    candidate_plans,
)
from .planner.widen import MIN_EPOCH_SECONDS
from .planner.width_plan import Job, curve_of
from .planner.windows import first_windows, windows

#: ``Plan.rule`` of a plan in which no trial is wider than one device.
NARROW = "longest_first"
#: The shape (time of an epoch by width) of a trial that must not be widened.
_ONE_DEVICE = ((1, 1.0),)
#: The least saving for which idle devices widen a trial, divided by the price of the resize.
_MIN_GAIN = 2.0


def waterfill(snapshot: Snapshot) -> Plan:
    """Return the best candidate plan, or the standing plan if no candidate is better."""
    candidates = (*snapshot.running, *snapshot.waiting)
    if not candidates or not snapshot.devices:
        return Plan(tuple(each.trial for each in snapshot.waiting))
    default_level = _median_level(candidates)
    jobs = [
        _job(
            each,
            snapshot,
            running=index < len(snapshot.running) and not each.measuring,
            default_level=default_level,
        )
        for index, each in enumerate(candidates)
    ]
    if not snapshot.staged and all(job.held <= 1 and len(job.curve.widths) == 1 for job in jobs):
        plan = Plan(longest_first(snapshot).order, rule=NARROW)
        begun = {job.trial: 1 for job in jobs}
        return _with_windows(plan, snapshot, jobs, begun, late=len(jobs) > snapshot.devices)
    best = _standing_plan(snapshot, candidates, jobs)
    goal = PROGRESS if snapshot.staged else MAKESPAN
    best_cost = math.inf if best is None else goal.cost(best.forecast)
    for candidate in candidate_plans(jobs, snapshot.devices, goal, best_cost):
        best = candidate
    assert best is not None  # leaving all widths as they are is a plan that can run
    best = _with_idle_devices(jobs, snapshot.devices, best)
    plan = _plan(snapshot, jobs, best)
    begun = best.forecast.widths
    return _with_windows(plan, snapshot, jobs, begun, late=bool(best.forecast.late))


def _with_windows(
    plan: Plan, snapshot: Snapshot, jobs: Sequence[Job], begun: Mapping[str, int], *, late: bool
) -> Plan:
    """Add width windows (short measurements at wider widths) to the plan, and return the plan.

    ``late`` is True if some trials cannot start at once. Then only studies without measurements
    get windows. ``begun`` maps each trial to its width at the start of the plan.
    """
    candidates = (*snapshot.running, *snapshot.waiting)
    if late:
        jobs_of = {job.trial: job for job in jobs}
        opened = first_windows(
            candidates,
            jobs_of,
            plan.order,
            devices=snapshot.devices,
            free=snapshot.free_devices,
        )
    else:
        opened = windows(candidates, jobs, snapshot.devices, begun)
    plan.windows.update(opened)
    return plan


def _with_idle_devices(jobs: Sequence[Job], devices: int, best: CandidatePlan) -> CandidatePlan:
    """Return ``best`` with trials widened onto idle devices, or ``best`` if it would end later.

    If all estimates were exact, wider trials would gain nothing. In reality some trials take longer
    than forecast, and on more devices such a trial makes more progress in the meantime. The trial
    with the most work left is widened first.
    """
    grants = _grants(jobs, devices, best)
    while grants:
        width_plans = list(best.width_plans)
        for index, width in grants:
            width_plans[index] = steady(width)
        plan = candidate_plan(
            jobs,
            devices,
            width_plans,
            best.rule,
            best.target,
            limit=best.forecast.makespan * (1 + 1e-9),
        )
        if plan is not None:
            return plan
        grants = grants[: len(grants) // 2]
    return best


def _grants(jobs: Sequence[Job], devices: int, best: CandidatePlan) -> list[tuple[int, int]]:
    """Return the (job index, width) pairs that put idle devices to use.

    The pairs are in the order in which devices are handed out, so a job can occur several times.
    """
    widths = best.forecast.widths
    begun = [index for index, job in enumerate(jobs) if job.trial not in best.forecast.late]
    idle = devices - sum(max(jobs[index].held, widths[jobs[index].trial]) for index in begun)
    grants: list[tuple[int, int]] = []
    queue = [
        (
            -jobs[index].epochs * jobs[index].seconds(widths[jobs[index].trial]),
            index,
            widths[jobs[index].trial],
        )
        for index in begun
        if jobs[index].epochs
    ]
    heapq.heapify(queue)
    while idle > 0 and queue:
        remaining, index, width = heapq.heappop(queue)
        job = jobs[index]
        wider = next((edge for edge in job.curve.breakpoints if edge > width), None)
        if wider is None:
            continue
        if wider - width > idle:
            wider = job.curve.widths[bisect_right(job.curve.widths, width + idle) - 1]
            if wider <= width:
                continue
        seconds = job.epochs * job.seconds(wider)
        if -remaining - seconds <= _MIN_GAIN * job.switch_cost(wider, job.last):
            continue
        idle -= wider - width
        grants.append((index, wider))
        heapq.heappush(queue, (-seconds, index, wider))
    return grants


def _median_level(candidates: Sequence[Candidate]) -> float:
    """Return the median seconds of an epoch over all measured candidates, or 1.0 if there are none.

    The median serves as the estimate for trials of studies without measurements.
    """
    levels = sorted(each.level for each in candidates if each.level is not None)
    return levels[len(levels) // 2] if levels else 1.0


def _job(candidate: Candidate, snapshot: Snapshot, *, running: bool, default_level: float) -> Job:
    # Short epochs do not repay the exchange between devices.
    elastic = candidate.level is None or candidate.level >= MIN_EPOCH_SECONDS
    return Job(
        trial=candidate.trial,
        epochs=candidate.target - candidate.epoch - running,
        boundary=candidate.boundary if running else 0.0,
        held=candidate.width if running else 0,
        last=candidate.width,
        level=default_level if candidate.level is None else candidate.level,
        curve=curve_of(
            candidate.shape if elastic else _ONE_DEVICE, snapshot.devices, candidate.width
        ),
        resize_cost=snapshot.resize,
        weight=candidate.promise,
    )


def _standing_plan(
    snapshot: Snapshot, candidates: Sequence[Candidate], jobs: Sequence[Job]
) -> CandidatePlan | None:
    """Return the previous plan, restricted to the work that is left.

    Return None if the previous plan does not cover all trials.
    """
    if snapshot.rule not in RULES:
        return None
    width_plans = []
    for each, job in zip(candidates, jobs, strict=True):
        width_plan = each.course
        if width_plan is not None and width_plan.wide not in job.curve.factor:
            width_plan = steady(width_plan.narrow)  # others have arrived since it was to explore
        if width_plan is None or width_plan.narrow not in job.curve.factor:
            return None
        if job.held == width_plan.wide and width_plan.epochs:
            width_plan = WidthPlan(width_plan.narrow, width_plan.wide, width_plan.epochs - 1)
        width_plans.append(width_plan if width_plan.epochs else steady(width_plan.narrow))
    return candidate_plan(
        jobs, snapshot.devices, width_plans, snapshot.rule, snapshot.deadline - snapshot.at
    )


def _plan(snapshot: Snapshot, jobs: Sequence[Job], best: CandidatePlan) -> Plan:
    by_trial = dict(
        zip((job.trial for job in jobs), zip(jobs, best.width_plans, strict=True), strict=True)
    )
    rule = RULES[best.rule].priority
    # Trials that begin at once go first: the forecast has a place for all of them.
    waiting = sorted(
        snapshot.waiting,
        key=lambda each: (
            each.trial in best.forecast.late,
            rule(*by_trial[each.trial], best.target),
        ),
    )
    width_plans = {}
    for trial, (job, width_plan) in by_trial.items():
        # The engine counts the current epoch as well.
        begun = width_plan.epochs > 0 and job.held == width_plan.wide
        width_plans[trial] = width_plan._replace(epochs=width_plan.epochs + begun)
    return Plan(
        tuple(each.trial for each in waiting),
        best.forecast.widths,
        patient=RULES[best.rule].blocking,
        courses=width_plans,
        rule=best.rule,
        deadline=snapshot.at + best.target,
    )
