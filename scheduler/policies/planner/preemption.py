"""Preemption: trials run or give way by rank, and no trial is starved.

Of all trials that wait or run, those of the lowest rank get the slots there are. Any other running
trial is held: it gives way when its epoch ends, or within a step to a trial that gets a seat in its
lane. A trial that could not continue from its current epoch elsewhere keeps its slot.

Each policy says for how long a trial may wait. A trial that has waited longer goes before all other
trials of its priority, by arrival. It does not give way to trials of its priority that have not
waited too long.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ...model.snapshot import Candidate, Plan, Snapshot
from .widen import widen_equally


class Rank(NamedTuple):
    """Rank of a trial in a preemptive plan.

    The trial with the lowest ``value`` goes first. ``patience`` is the longest time that the trial
    may wait (seconds).
    """

    value: float
    patience: float


def preemptive_plan(snapshot: Snapshot, rank: Callable[[Candidate], Rank], until: float) -> Plan:
    """Return the plan that runs the trials of the lowest rank.

    ``rank`` computes the rank of a trial. ``until`` is the next time at which a rank changes even
    if no event happens (seconds on the runner's clock).
    """
    running = {candidate.trial for candidate in snapshot.running}
    ranks = {each.trial: rank(each) for each in (*snapshot.running, *snapshot.waiting)}

    def key(candidate: Candidate) -> tuple[int, bool, float, bool, float]:
        value, patience = ranks[candidate.trial]
        starved = candidate.waited >= patience
        return (
            -candidate.priority,
            not starved,
            candidate.since if starved else value,
            candidate.trial not in running,
            candidate.since,
        )

    slots = snapshot.free_slots + sum(max(1, each.width) for each in snapshot.running)
    slots -= snapshot.beside + sum(not each.movable for each in snapshot.running)
    ordered = sorted(
        (*(each for each in snapshot.running if each.movable), *snapshot.waiting), key=key
    )
    hold = [each.trial for each in ordered[max(0, slots) :] if each.trial in running]
    for each in (*snapshot.waiting, *(each for each in snapshot.running if each.suspended)):
        if (patience := ranks[each.trial].patience) > each.waited:
            until = min(until, snapshot.at + patience - each.waited)
    order = [each.trial for each in ordered if each.trial not in running]
    return Plan(tuple(order), widen_equally(snapshot), hold=tuple(hold), until=until)
