"""Policy ``fair``: each study has its weighted share of the slots, and no other rule applies.

The engine computes the shares (``scheduler.resources.fair_share``). No study is starved: a study
with fewer slots than the whole part of its share gets the next free slot. Credit decides which
study gets a slot for the fractions of shares.
"""

from __future__ import annotations

from ..model.snapshot import Plan, Snapshot
from .planner.widen import widen_equally


def fair(snapshot: Snapshot) -> Plan:
    """Return a plan that runs the waiting trials of a study in order of arrival."""
    return Plan(tuple(candidate.trial for candidate in snapshot.waiting), widen_equally(snapshot))
