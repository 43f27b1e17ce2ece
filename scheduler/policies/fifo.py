"""Policy ``fifo``: first come, first served. It is the reference for tests."""

from __future__ import annotations

from ..model.snapshot import Plan, Snapshot
from .planner.widen import spread


def fifo(snapshot: Snapshot) -> Plan:
    """Plan waiting trials in order of arrival."""
    return Plan(tuple(each.trial for each in snapshot.waiting), spread(snapshot))
