"""Policy ``las``: the least attained service first, across all studies, if sizes are unknown.

The trial with the least device time goes first, so short trials end soon although nobody knows that
they are short. The policy compares levels of service instead of seconds, as the discretised queues
of Tiresias do (Gu et al., NSDI 2019): a level lasts twice as long as the one below it, and within a
level the first to arrive goes first. So a trial gives way only a few times in its life.
"""

from __future__ import annotations

import math

from ..model.snapshot import Candidate, Plan, Snapshot
from .planner.preemption import Rank, preemptive_plan

#: The service that ends the lowest level (device-seconds).
QUANTUM = 60.0
#: The longest wait of a trial divided by its service so far (at least ``QUANTUM``).
PATIENCE = 20.0


def las(snapshot: Snapshot) -> Plan:
    """Run the trials of the lowest levels."""
    everybody = (*snapshot.running, *snapshot.waiting)  # one that waits may begin at once
    until = min((snapshot.at + _left(each) for each in everybody), default=math.inf)
    return preemptive_plan(snapshot, _rank, until)


def level(service: float) -> int:
    """Return the level: 0 below ``QUANTUM``, 1 below 3 ``QUANTUM``, 2 below 7 ``QUANTUM``, etc."""
    return math.floor(math.log2(1.0 + service / QUANTUM))


def _rank(candidate: Candidate) -> Rank:
    service = candidate.service
    return Rank(float(level(service)), PATIENCE * max(QUANTUM, service))


def _left(candidate: Candidate) -> float:
    """Return the seconds until the candidate's service ends its level.

    The time since its present epoch began counts as service.
    """
    end = QUANTUM * (2.0 ** (level(candidate.service) + 1) - 1.0)
    begun = 0.0
    if candidate.epoch_seconds is not None and candidate.boundary > 0.0:
        begun = max(0.0, candidate.epoch_seconds - candidate.boundary)
    return max(0.0, (end - candidate.service) / max(1, candidate.width) - begun)
