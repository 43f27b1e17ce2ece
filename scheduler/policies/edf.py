"""Policy ``edf``: the earliest deadline first, across all studies.

On one device, with trials that may give way at any time, an order that meets all deadlines exists
only if this order meets them (Dertouzos 1974). Trials of a study have its deadline. Trials of
studies without a deadline go last, by arrival, and may wait for as long as there is a deadline.
"""

from __future__ import annotations

import math

from ..model.snapshot import Candidate, Plan, Snapshot
from .planner.preemption import Rank, preemptive_plan


def edf(snapshot: Snapshot) -> Plan:
    """Run the trials of the studies with the earliest deadlines."""
    return preemptive_plan(snapshot, _rank, math.inf)


def _rank(candidate: Candidate) -> Rank:
    return Rank(candidate.deadline, math.inf)
