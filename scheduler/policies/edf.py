"""Policy ``edf``: the earliest deadline first, across all studies.

On one device, with trials that may give way at any time, an order that meets all deadlines exists
only if this order meets them (Dertouzos 1974). The deadline of a trial is the deadline of its
study. Trials of studies without a deadline go last, in order of arrival. Such trials have no limit
on their waiting time.
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
