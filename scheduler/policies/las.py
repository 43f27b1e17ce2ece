"""Policy ``las``: the least attained service first, across all studies.

The service of a trial is the device time that the trial has used. The trial with the least service
goes first. So short trials end soon, even if the length of trials is not known. The policy compares
levels of service instead of seconds, a method from the discretised queues of Tiresias (Gu et al.,
NSDI 2019). Each level lasts twice as long as the level below. Within a level, the trial that
arrived first goes first. So a trial gives way only a few times in its life.
"""

from __future__ import annotations

import math

from ..model.snapshot import Candidate, Plan, Snapshot
from .planner.preemption import Rank, preemptive_plan

#: The service at which a trial leaves the lowest level (device-seconds).
QUANTUM = 60.0
#: The longest wait of a trial divided by its service so far (at least ``QUANTUM``).
PATIENCE = 20.0


def las(snapshot: Snapshot) -> Plan:
    """Return a plan that runs the trials of the lowest levels of service."""
    everybody = (*snapshot.running, *snapshot.waiting)  # one that waits may begin at once
    until = min((snapshot.at + _left(each) for each in everybody), default=math.inf)
    return preemptive_plan(snapshot, _rank, until)


def level(service: float) -> int:
    """Return the level of a trial that has had ``service`` device-seconds.

    Level 0 ends at ``QUANTUM``, level 1 at ``3 * QUANTUM``, level 2 at ``7 * QUANTUM``, and so on.
    """
    return math.floor(math.log2(1.0 + service / QUANTUM))


def _rank(candidate: Candidate) -> Rank:
    service = candidate.service
    return Rank(float(level(service)), PATIENCE * max(QUANTUM, service))


def _left(candidate: Candidate) -> float:
    """Return the seconds of running after which the candidate moves up to the next level.

    The time since the candidate's current epoch began counts as service.
    """
    end = QUANTUM * (2.0 ** (level(candidate.service) + 1) - 1.0)
    begun = 0.0
    if candidate.epoch_seconds is not None and candidate.boundary > 0.0:
        begun = max(0.0, candidate.epoch_seconds - candidate.boundary)
    return max(0.0, (end - candidate.service) / max(1, candidate.width) - begun)
