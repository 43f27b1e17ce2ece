"""Policies ``static_fluid`` and ``dynamic_fluid``.

The policies are StaticFluid and DynamicFluid (Yu, Liu, Chowdhury, MLSys 2021, Algorithms 1 and 2).
Both serve as baselines and follow the paper. Trial i of a group, with expected seconds h_i on one
device, gets

    w_i = min(max(floor(h_i / sum(h) * n), 1 / c), d)

of n devices, where c trials fit on a device and d is the largest width that a trial may have.
``static_fluid`` sets a trial's width when the trial begins, and never changes the width.
``dynamic_fluid`` computes a new w' from the remaining work. A trial shrinks if that saves
device-seconds, w' (h(w') + price) < w h(w), and grows if it then ends sooner, h(w') + price < h(w).
(The paper's line 8 updates with w_i, which changes nothing; w'_i must be meant.) Here c is 1: a
trial has a device to itself.

The formula's known faults are kept. Rounding down leaves devices unused: four equal trials on five
devices get one each. The lower bounds can sum to more devices than there are, so that trials wait.
"""

from __future__ import annotations

import math

from ..model.snapshot import Candidate, Plan, Snapshot


def static_fluid(snapshot: Snapshot) -> Plan:
    """Return a plan in which each new trial gets devices in proportion to its share of the work.

    A trial that has begun keeps its width.
    """
    shares = _shares(snapshot)
    widths = {
        candidate.trial: candidate.width or shares[candidate.trial]
        for candidate in (*snapshot.running, *snapshot.waiting)
    }
    return Plan(_started_first(snapshot), widths)


def dynamic_fluid(snapshot: Snapshot) -> Plan:
    """Return a plan in which each trial gets devices in proportion to its remaining work.

    A trial that has begun changes its width only if the change is worth the cost of a resize.
    """
    shares = _shares(snapshot)
    widths = {}
    for candidate in (*snapshot.running, *snapshot.waiting):
        new, old = shares[candidate.trial], candidate.width
        if old == 0:
            worthwhile = True
        elif new < old:
            worthwhile = new * (
                _remaining_work(candidate, new) + snapshot.resize
            ) < old * _remaining_work(candidate, old)
        else:
            worthwhile = _remaining_work(candidate, new) + snapshot.resize < _remaining_work(
                candidate, old
            )
        widths[candidate.trial] = new if worthwhile else old
    return Plan(_started_first(snapshot), widths)


def _shares(snapshot: Snapshot) -> dict[str, int]:
    candidates = (*snapshot.running, *snapshot.waiting)
    total = sum(_remaining_work(candidate, 1) for candidate in candidates)
    return {
        candidate.trial: min(
            max(math.floor(_remaining_work(candidate, 1) / total * snapshot.devices), 1),
            candidate.widest,
        )
        for candidate in candidates
    }


def _remaining_work(candidate: Candidate, width: int) -> float:
    """Return the time of the trial's remaining epochs on ``width`` devices (seconds).

    If no epoch was measured, an epoch on one device counts as 1 second. The time at a width beyond
    the largest known one is the time at the largest known width.
    """
    factors = dict(candidate.likely or candidate.shape)
    factor = factors[min(width, max(factors))]
    return (
        (candidate.target - candidate.epoch)
        * factor
        * (1.0 if candidate.level is None else candidate.level)
    )


def _started_first(snapshot: Snapshot) -> tuple[str, ...]:
    """Return the waiting trials: trials that have begun, followed by new trials.

    In each of the two parts, the trial with the most remaining work comes first.
    """
    order = sorted(
        snapshot.waiting,
        key=lambda candidate: (candidate.width == 0, -_remaining_work(candidate, 1)),
    )
    return tuple(candidate.trial for candidate in order)
