"""Policy ``fifo``: first come, first served, across all studies. It is the reference for tests.

The trials of the study that was submitted first go first, and no trial gives way. So a trial waits
at most for the trials that came before it.
"""

from __future__ import annotations

from ..model.snapshot import Candidate, Plan, Snapshot
from .planner.widen import widen_equally


def fifo(snapshot: Snapshot) -> Plan:
    """Plan waiting trials by their studies' submission, and in order of arrival within a study."""
    order = sorted(snapshot.waiting, key=by_submission)
    return Plan(tuple(candidate.trial for candidate in order), widen_equally(snapshot))


def by_submission(candidate: Candidate) -> tuple[int, float]:
    """Return the key of ``fifo``: the highest priority, then the first submitted study, first."""
    return -candidate.priority, candidate.arrived
