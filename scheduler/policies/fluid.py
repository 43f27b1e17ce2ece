"""Policies ``static_fluid`` and ``dynamic_fluid``.

They are StaticFluid and DynamicFluid (Yu, Liu, Chowdhury, MLSys 2021, Algorithms 1 and 2), kept as
baselines as the paper has them. Trial i of a group, with expected seconds h_i on one device, gets

    w_i = min(max(floor(h_i / sum(h) * n), 1 / c), d)

of n devices, where c trials fit on a device and d is the largest width that a trial may have.
``static_fluid`` decides when a trial begins and never again. ``dynamic_fluid`` computes a new w'
from the remaining work. A trial shrinks if that saves device-seconds, w' (h(w') + price) < w h(w),
and grows if it then ends sooner, h(w') + price < h(w). (The paper's line 8 updates with w_i, which
changes nothing; w'_i must be meant.) Here c is 1: a trial has a device to itself.

The formula's known faults are kept. Rounding down leaves devices unused: four equal trials on five
devices get one each. The lower bounds can sum to more devices than there are, so that trials wait.
"""

from __future__ import annotations

import math

from ..model.snapshot import Candidate, Plan, Snapshot


def static_fluid(snapshot: Snapshot) -> Plan:
    """Plan widths by each trial's share of the work. A trial that has begun keeps its width."""
    shares = _shares(snapshot)
    widths = {
        each.trial: each.width or shares[each.trial]
        for each in (*snapshot.running, *snapshot.waiting)
    }
    return Plan(_begun_first(snapshot), widths)


def dynamic_fluid(snapshot: Snapshot) -> Plan:
    """As ``static_fluid``, but widths follow the remaining work where that is worth a resize."""
    shares = _shares(snapshot)
    widths = {}
    for each in (*snapshot.running, *snapshot.waiting):
        new, old = shares[each.trial], each.width
        if old == 0:
            worth = True
        elif new < old:
            worth = new * (_remaining_work(each, new) + snapshot.resize) < old * _remaining_work(
                each, old
            )
        else:
            worth = _remaining_work(each, new) + snapshot.resize < _remaining_work(each, old)
        widths[each.trial] = new if worth else old
    return Plan(_begun_first(snapshot), widths)


def _shares(snapshot: Snapshot) -> dict[str, int]:
    candidates = (*snapshot.running, *snapshot.waiting)
    total = sum(_remaining_work(each, 1) for each in candidates)
    return {
        each.trial: min(
            max(math.floor(_remaining_work(each, 1) / total * snapshot.devices), 1), each.widest
        )
        for each in candidates
    }


def _remaining_work(each: Candidate, width: int) -> float:
    """Seconds for the remaining epochs on ``width`` devices; epochs if nothing was measured.

    Devices beyond the largest known width gain nothing.
    """
    factors = dict(each.shape)
    factor = factors[min(width, max(factors))]
    return (each.target - each.epoch) * factor * (1.0 if each.level is None else each.level)


def _begun_first(snapshot: Snapshot) -> tuple[str, ...]:
    """Trials that have begun come before new ones; within both, the longest first."""
    order = sorted(snapshot.waiting, key=lambda each: (each.width == 0, -_remaining_work(each, 1)))
    return tuple(each.trial for each in order)
