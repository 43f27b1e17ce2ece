"""Policy ``srtf``: the shortest remaining time first, across all studies.

On one device, without a price of switching and with known times, no order has a lower mean
completion time (Schrage 1968). Times come from the cost table. Where they are uncertain, a trial is
taken to be one standard deviation shorter than expected, and one of a study of which nothing is
known goes first: an epoch of it shows how long it is.
"""

from __future__ import annotations

import math

from ..model.snapshot import Candidate, Plan, Snapshot
from .planner.preemption import Rank, preemptive_plan

#: A trial may wait so many times what it still needs ...
PATIENCE = 20.0
#: ... and no less than so many times this (seconds).
SHORTEST = 60.0


def srtf(snapshot: Snapshot) -> Plan:
    """Run the trials that have the least time left up to their targets."""
    return preemptive_plan(snapshot, _rank, math.inf)


def _rank(candidate: Candidate) -> Rank:
    if candidate.epoch_seconds is None or candidate.seconds is None:
        return Rank(0.0, PATIENCE * SHORTEST)
    left = candidate.seconds
    if candidate.boundary > 0.0:  # it is within an epoch
        left -= max(0.0, candidate.epoch_seconds - candidate.boundary)
    return Rank(left * math.exp(-candidate.deviation), PATIENCE * max(SHORTEST, left))
