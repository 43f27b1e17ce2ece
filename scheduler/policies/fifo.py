"""Policy ``fifo``: first come, first served, across all studies. It is the reference for tests.

The trials of the study that was submitted first go first, and no trial gives way. So a trial waits
at most for the trials that came before that trial.
"""

from __future__ import annotations

from ..model.snapshot import Candidate, Plan, Snapshot
from .planner.widen import widen_equally


def fifo(snapshot: Snapshot) -> Plan:
    """Return a plan that runs waiting trials in the order in which studies were submitted.

    Studies with a higher priority go first. Within a study, trials run in order of arrival.
    """
    order = sorted(snapshot.waiting, key=by_submission)
    return Plan(tuple(candidate.trial for candidate in order), widen_equally(snapshot))


def by_submission(candidate: Candidate) -> tuple[int, float]:
    """Return the sort key of policy ``fifo``.

    The highest priority sorts first. Within a priority, the study submitted first sorts first.
    """
    return -candidate.priority, candidate.arrived
