"""Policy ``fifo``: first come, first served. It is the reference for tests."""

from __future__ import annotations

from ..model.snapshot import Plan, Snapshot
from .planner.widen import widen_equally


def fifo(snapshot: Snapshot) -> Plan:
    """Plan waiting trials in order of arrival."""
    return Plan(tuple(candidate.trial for candidate in snapshot.waiting), widen_equally(snapshot))
