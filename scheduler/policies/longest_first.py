"""Policy ``longest_first``: the longest remaining work goes first.

The makespan is at most 4/3 - 1/(3m) of the optimum (Graham 1969).
"""

from __future__ import annotations

from ..model.snapshot import Candidate, Plan, Snapshot
from .planner.widen import widen_equally


def longest_first(snapshot: Snapshot) -> Plan:
    """Return a plan that runs the waiting trials with the longest remaining work first.

    The work is the expected time (seconds), or the number of epochs if no time was measured.
    """

    def work(candidate: Candidate) -> float:
        return (
            candidate.seconds
            if candidate.seconds is not None
            else float(candidate.target - candidate.epoch)
        )

    order = sorted(snapshot.waiting, key=work, reverse=True)
    return Plan(tuple(candidate.trial for candidate in order), widen_equally(snapshot))
