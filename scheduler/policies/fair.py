"""Policy ``fair``: each study has its weighted share of the slots, and nothing else is decided.

Shares are the engine's (``scheduler.resources.fair_share``). No study is starved: a study below the
whole part of its share gets the next free slot, and credit decides about fractions of slots.
"""

from __future__ import annotations

from ..model.snapshot import Plan, Snapshot
from .planner.widen import widen_equally


def fair(snapshot: Snapshot) -> Plan:
    """Plan the waiting trials of a study in order of arrival."""
    return Plan(tuple(candidate.trial for candidate in snapshot.waiting), widen_equally(snapshot))
