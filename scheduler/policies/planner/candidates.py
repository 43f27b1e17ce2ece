"""Candidate plans: width plans and an order for one target after another, checked by forecasts.

Theory of operation. For a target T at or above the fluid bound, each job has a cheapest *width
plan* in whole epochs that ends by T, including the price of resizes: all epochs at one width, or a
part at each of two adjacent breakpoints of its hull. Together the width plans need some
device-seconds, and list scheduling (``list_scheduling``) computes when they really end: later than
T if they do not fit together. So several targets and orders are tried: first the lowest targets,
then some between the bound and the best candidate found. The goal (``Goal``) is an early end of all
trials together, or also of each single trial.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ...model.snapshot import WidthPlan, steady
from .bounds import fluid_bound
from .list_scheduling import Forecast, forecast
from .width_plan import Job, cheapest_width_plan

#: Targets, as multiples of the bound, tried in turn while a lower cost is possible.
_TARGETS = (
    *(1.0, 1.003, 1.007, 1.012, 1.02, 1.03, 1.045, 1.06, 1.08, 1.11, 1.15, 1.2, 1.3, 1.4, 1.6),
    *(1.8, 2.1, 2.5, 3.0, 4.0, 6.0, 10.0),
)
#: Number of targets between the bound and the best plan that are tried afterwards.
_TARGETS_BETWEEN = 12
#: The most forecasts for one plan, times the number of trials. So a plan of many trials is searched
#: with fewer forecasts.
_FORECAST_BUDGET = 2500
#: The rules tried at every target above the bound.
_RULES_ABOVE = ("start, seated", "start", "longest", "start, patient")
#: The rules tried in turn at targets between the bound and the best plan.
_RULES_BETWEEN = ("start", "start, seated", "longest", "longest, seated", "largest")
#: Weight of the mean completion against the makespan, from 0 to 1, if later work depends on
#: results.
_COMPLETION_WEIGHT = 0.85
#: A plan is good enough if its end divided by the bound is at most this.
_CLOSE_ENOUGH = 1.002


class Rule(NamedTuple):
    """An order of trials in a plan.

    ``priority`` computes a number from a job, its width plan and the target. The trial with the
    smallest number goes first. ``narrow_first`` and ``blocking`` are arguments of
    ``list_scheduling.forecast``.
    """

    priority: Callable[[Job, WidthPlan, float], float]
    narrow_first: bool
    blocking: bool = False


def _duration(job: Job, width_plan: WidthPlan) -> float:
    """Return the seconds of the width plan's wide part.

    If the width plan has a single width, return the seconds of all its epochs.
    """
    if width_plan.epochs:
        return width_plan.epochs * job.seconds(width_plan.wide)
    return job.epochs * job.seconds(width_plan.narrow)


def _start(job: Job, width_plan: WidthPlan, target: float) -> float:
    """Return the latest start with which the job's wide part still ends by ``target`` (seconds).

    The value is slightly lower for a running job, so that a running job goes first on a tie.
    """
    return target - _duration(job, width_plan) - (1e-6 * target if job.held else 0.0)


def _longest(job: Job, width_plan: WidthPlan, target: float) -> float:
    return -_duration(job, width_plan)


def _shortest(job: Job, width_plan: WidthPlan, target: float) -> float:
    """Return the duration divided by the job's weight, the key of Smith's rule.

    For jobs in sequence, this order minimises the weighted mean completion time.
    """
    return _duration(job, width_plan) / job.weight


def _largest(job: Job, width_plan: WidthPlan, target: float) -> float:
    return -_duration(job, width_plan) * width_plan.wide


RULES = {
    "start": Rule(_start, narrow_first=False),
    "start, seated": Rule(_start, narrow_first=True),
    "start, patient": Rule(_start, narrow_first=False, blocking=True),
    "longest": Rule(_longest, narrow_first=False),
    "longest, seated": Rule(_longest, narrow_first=True),
    "largest": Rule(_largest, narrow_first=False),
    "shortest": Rule(_shortest, narrow_first=False),
}


class Goal(NamedTuple):
    """The quantity to minimise: the makespan, or a mix of the makespan and the mean completion.

    ``completion`` is the weight of the mean completion in the mix. ``rules`` are tried at every
    target above the bound.
    """

    completion: float
    rules: tuple[str, ...]

    def cost(self, found: Forecast) -> float:
        """Return the quantity to minimise, computed for the forecast ``found`` (seconds)."""
        return found.makespan + self.completion * (found.completion - found.makespan)

    def limit(self, cost: float) -> float:
        """Return the makespan (seconds) above which a plan costs more than ``cost``."""
        return cost / (1.0 - self.completion)


MAKESPAN = Goal(0.0, _RULES_ABOVE)
PROGRESS = Goal(_COMPLETION_WEIGHT, (*_RULES_ABOVE, "shortest"))


@dataclass(frozen=True, slots=True)
class CandidatePlan:
    """A plan that was tried, with the forecast of its result."""

    width_plans: tuple[WidthPlan, ...]
    rule: str
    target: float
    forecast: Forecast


def candidate_plans(
    jobs: Sequence[Job], devices: int, goal: Goal = MAKESPAN, best_cost: float = math.inf
) -> Iterator[CandidatePlan]:
    """Yield plans for ``jobs``, each with a lower cost than all plans yielded before.

    All plans cost less than ``best_cost`` (seconds). In the first plans, a running job keeps its
    width and a waiting job gets its narrowest width.
    """
    longest = max(job.boundary + job.epochs * job.fastest for job in jobs)
    bound = max(longest, fluid_bound([(job.work, job.curve.hull) for job in jobs], devices))
    unchanged = [steady(job.held or job.curve.widths[0]) for job in jobs]
    # Jobs with equal weight take turns: with the shortest first, some might never begin (PBT).
    weighted = goal.completion and len({job.weight for job in jobs}) > 1
    for rule in ("longest", "shortest") if weighted else ("longest",):
        initial = candidate_plan(jobs, devices, unchanged, rule, bound)
        if initial is not None and goal.cost(initial.forecast) < best_cost * (1 - 1e-9):
            best_cost = goal.cost(initial.forecast)
            yield initial
    if all(len(job.curve.widths) == 1 for job in jobs):
        return
    forecasts_left = max(
        3, min(4 * (len(_TARGETS) + _TARGETS_BETWEEN), _FORECAST_BUDGET // len(jobs))
    )

    def improvements(target: float, rules: Sequence[str]) -> Iterator[CandidatePlan]:
        nonlocal best_cost, forecasts_left
        width_plans = _cheapest_plans(jobs, devices, target)
        for rule in rules if width_plans else ():
            forecasts_left -= 1
            limit = goal.limit(best_cost) * (1 - 1e-9)
            plan = candidate_plan(jobs, devices, width_plans, rule, target, limit=limit)
            if plan is not None and goal.cost(plan.forecast) < best_cost * (1 - 1e-9):
                best_cost = goal.cost(plan.forecast)
                yield plan

    for factor in _TARGETS:
        if forecasts_left <= 0 or bound * factor > goal.limit(best_cost):
            break
        yield from improvements(bound * factor, goal.rules)
    for k in range(1, _TARGETS_BETWEEN + 1):
        if forecasts_left <= 0 or best_cost <= bound * _CLOSE_ENOUGH:
            break
        target = bound + (best_cost - bound) * k / (_TARGETS_BETWEEN + 1)
        yield from improvements(target, (_RULES_BETWEEN[k % len(_RULES_BETWEEN)],))


def candidate_plan(
    jobs: Sequence[Job],
    devices: int,
    width_plans: Sequence[WidthPlan],
    rule: str,
    target: float,
    *,
    limit: float = math.inf,
) -> CandidatePlan | None:
    """Return the plan that runs ``jobs`` by ``width_plans`` in the order of ``rule``.

    Return None if the jobs cannot all end before ``limit``.
    """
    priority, narrow_first, blocking = RULES[rule]
    priorities = [
        priority(job, width_plan, target) for job, width_plan in zip(jobs, width_plans, strict=True)
    ]
    schedule = forecast(
        jobs,
        devices,
        width_plans,
        priorities,
        narrow_first=narrow_first,
        blocking=blocking,
        limit=limit,
    )
    return None if schedule is None else CandidatePlan(tuple(width_plans), rule, target, schedule)


def _cheapest_plans(jobs: Sequence[Job], devices: int, target: float) -> tuple[WidthPlan, ...]:
    """Return the cheapest width plans, one per job, that end by ``target``.

    The result is empty if some job cannot end by ``target``, or if the plans together need more
    device-seconds than the devices have until ``target``.
    """
    area = sum(job.boundary * job.held for job in jobs)
    budget = devices * target * (1 + 1e-9)
    plans = []
    for job in jobs:
        found_plan = cheapest_width_plan(job, target)
        if found_plan is None:
            return ()
        area += found_plan[0]
        if area > budget:
            return ()
        plans.append(found_plan[1])
    return tuple(plans)
