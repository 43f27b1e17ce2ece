"""Policy ``srtf``: the shortest remaining time first, across all studies.

On one device, without a price of switching and with known times, no order has a lower mean
completion time (Schrage 1968). Times come from the cost table. If they are uncertain, a trial is
assumed to be one standard deviation shorter than expected. A trial of a study without measurements
goes first: one epoch shows how long the trial is. But a trial that is sure to end soon does not
give way to such a trial, since that epoch may take longer.
"""

from __future__ import annotations

import math
from dataclasses import replace

from ..model.snapshot import Candidate, Plan, Snapshot
from .planner.preemption import Rank, preemptive_plan

#: The longest wait of a trial divided by the seconds that it still needs (at least ``SHORTEST``).
PATIENCE = 20.0
#: The most remaining seconds of a trial that counts as short.
SHORTEST = 60.0


def srtf(snapshot: Snapshot) -> Plan:
    """Return a plan that runs the trials with the least time left up to their targets."""
    plan = preemptive_plan(snapshot, _rank, math.inf)
    spared = _spared(snapshot, plan)
    return replace(plan, hold=tuple(trial for trial in plan.hold if trial not in spared))


def _rank(candidate: Candidate) -> Rank:
    remaining = _left(candidate)
    if remaining is None:
        return Rank(0.0, PATIENCE * SHORTEST)
    return Rank(remaining * math.exp(-candidate.deviation), PATIENCE * max(SHORTEST, remaining))


def _left(candidate: Candidate) -> float | None:
    """Return the expected seconds until the trial reaches its target.

    Return None if no epoch of the trial's study was measured.
    """
    if candidate.epoch_seconds is None or candidate.seconds is None:
        return None
    begun = 0.0
    if candidate.boundary > 0.0:  # it is within an epoch
        begun = max(0.0, candidate.epoch_seconds - candidate.boundary)
    return candidate.seconds - begun


def _spared(snapshot: Snapshot, plan: Plan) -> list[str]:
    """Return the running trials to spare: short trials that would give way to unmeasured trials.

    The shortest trial comes first.
    """
    waiting = {each.trial: each for each in snapshot.waiting}
    first = plan.order[: snapshot.free_slots + len(plan.hold)]
    unknown = sum(_left(waiting[trial]) is None for trial in first) - snapshot.free_slots
    short = {
        each.trial: most
        for each in snapshot.running
        if each.trial in plan.hold
        and (remaining := _left(each)) is not None
        and (most := remaining * math.exp(each.deviation)) <= SHORTEST
    }
    return sorted(short, key=short.__getitem__)[: max(0, unknown)]
