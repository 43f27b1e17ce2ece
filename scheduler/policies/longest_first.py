"""Policy: the longest remaining work first (Graham 1969: at most 4/3 - 1/(3m) of the optimum)."""

from __future__ import annotations

from ..model.snapshot import Candidate, Plan, Snapshot
from .planner.widen import spread


def longest_first(snapshot: Snapshot) -> Plan:
    """Waiting trials by falling expected seconds; epochs stand in where nothing was measured."""

    def work(each: Candidate) -> float:
        return each.seconds if each.seconds is not None else float(each.target - each.epoch)

    order = sorted(snapshot.waiting, key=work, reverse=True)
    return Plan(tuple(each.trial for each in order), spread(snapshot))
