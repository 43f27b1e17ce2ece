"""Policy ``pack``: as many trials at once as memory holds, across all studies, in order of arrival.

A device with several slots takes trials as long as they fit into its memory, whatever that does to
their speed. So trials begin early, and a long trial does not hold up a short trial. If a trial fits
on no device, smaller trials overtake that trial. Once a trial has waited for ``PATIENCE`` seconds,
no other trial is placed on a device before that trial.
"""

from __future__ import annotations

import math

from ..model.snapshot import Plan, Snapshot
from .fifo import by_submission
from .planner.widen import widen_equally

#: The longest time for which the first trial in line may be overtaken (seconds).
PATIENCE = 600.0


def pack(snapshot: Snapshot) -> Plan:
    """Return a plan that fills the devices with waiting trials, in the order of policy ``fifo``."""
    order = sorted(snapshot.waiting, key=by_submission)
    waited = max((each.waited for each in order), default=0.0)
    starved = [each for each in order if each.waited >= PATIENCE]
    order = [*starved, *(each for each in order if each.waited < PATIENCE)]
    until = snapshot.at + PATIENCE - waited if order and not starved else math.inf
    return Plan(
        tuple(each.trial for each in order),
        widen_equally(snapshot),
        packed=True,
        patient=bool(starved),
        until=until,
    )
