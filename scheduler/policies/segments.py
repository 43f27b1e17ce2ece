"""Segment lengths: the number of epochs to send as one task, computed from the costs of a segment.

Theory of operation. A segment has a fixed overhead ``o`` (seconds: dispatch, claim, the last
report, acceptance), so long segments save device time. A trial that gets the slot of a running
trial waits for the end of a segment, so short segments save waiting. Let a slot be preempted once
in ``M`` seconds on average, at a moment that is independent of segments, and let ``k`` segments of
``L`` seconds run side by side. Then:

- the overhead takes ``o / L`` of a slot's time;
- the first of ``k`` segments ends after ``L / (k + 1)`` on average (the least of ``k`` uniform
  residual times), so waiting costs ``L / ((k + 1) M)`` per second, if a second of waiting is worth
  a second of a slot;
- a trial that was preempted pays ``r`` when it goes on. Preemptions within one segment take the
  slot once, so this is ``r (1 - exp(-L / M)) / L`` per second.

The sum is least where its derivative vanishes:

    L^2 = (k + 1) M (o + r g(L / M)),    g(x) = 1 - (1 + x) exp(-x)

``g`` is the probability of two preemptions in one segment: a longer segment saves only those. For
``k = 1`` and ``r = 0`` this is ``L = sqrt(2 o M)``, Young's formula for the interval between two
checkpoints (J. W. Young, "A first order approximation to the optimum checkpoint interval", CACM
17(9), 1974; J. T. Daly, FGCS 22(3), 2006), with an interruption in place of a failure. Failures do
not count here: epochs are accepted one by one, so a crash loses the epoch in which it happens,
however long the segment. The cost of restoring the state is balanced when states are made durable
(``profiling.costs.failure_rate``).

Bounds protect the user. Overhead takes at most ``MAX_OVERHEAD`` of a slot's time. No trial waits
for more than ``MAX_DELAY`` seconds, or an epoch if that is longer; this bound takes precedence. A
segment never passes the trial's target, at which the strategy decides.
"""

from __future__ import annotations

from math import ceil, exp, sqrt

from ...profiling.costs.segment_costs import SegmentStart
from ...profiling.costs.table import SHORTEST_EPOCH
from ..model.segment_length import LengthReason, SegmentLength

#: The share of a slot's time that the overhead of segments may take.
MAX_OVERHEAD = 0.05
#: The longest planned segment of more than one epoch (seconds).
MAX_DELAY = 2.0
#: The most times that the equation for the length is applied.
ITERATIONS = 8
#: Part of ``o`` below which ``r (L / M)^2`` is left out, as it mostly is. That term makes ``L``
#: longer by less than a hundredth then, because ``g(x)`` is at most ``x^2 / 2``.
NEGLIGIBLE = 0.04


def balanced_seconds(overhead: float, resume: float, interval: float, running: int) -> float:
    """Return the best length of a segment in seconds, ``L`` in the module's formula.

    ``overhead`` is ``o``, ``resume`` is ``r``, ``interval`` is ``M`` (all in seconds), and
    ``running`` is ``k``.

    >>> balanced_seconds(0.01, 0.0, 50.0, 1)
    1.0
    """
    scale = (running + 1) * interval
    length = sqrt(scale * overhead)
    for _ in range(ITERATIONS):  # rises to the least solution
        x = length / interval
        if resume * x * x <= NEGLIGIBLE * overhead:
            break
        length = sqrt(scale * (overhead + resume * (1.0 - (1.0 + x) * exp(-x))))
    return length


def segment_length(
    epoch_seconds: float | None,
    limit: int,
    limited_by: LengthReason,
    *,
    overhead: float,
    resume: float,
    tier: SegmentStart,
    interval: float,
    running: int,
) -> SegmentLength:
    """Return the length of a trial's next segment, and the reason for it.

    ``epoch_seconds`` is the expected time of an epoch, or None if it is not known. More than
    ``limit`` epochs (at least 1) are not possible, because of ``limited_by``. ``overhead`` and
    ``resume`` are ``o`` and ``r`` in the module's formula (seconds), and ``interval`` is ``M``.
    ``running`` is ``k``, which includes this segment. ``tier`` names the place from which the trial
    would be resumed.
    """
    if limit == 1:
        return SegmentLength(1, limited_by, epoch_seconds)
    if epoch_seconds is None:
        return SegmentLength(1, LengthReason.UNMEASURED)
    seconds = max(SHORTEST_EPOCH, epoch_seconds)
    bounded = int(MAX_DELAY / seconds)
    if bounded <= 1:
        return SegmentLength(1, LengthReason.EPOCH, epoch_seconds)
    epochs = round(balanced_seconds(overhead, resume, interval, running) / seconds) or 1
    reason = LengthReason.BALANCE
    least = ceil(overhead * (1.0 - MAX_OVERHEAD) / (MAX_OVERHEAD * seconds))
    if least > epochs:
        epochs, reason = least, LengthReason.OVERHEAD
    if bounded < epochs:
        epochs, reason = bounded, LengthReason.DELAY
    if limit < epochs:
        epochs, reason = limit, limited_by
    if epochs == 1:
        reason = LengthReason.EPOCH
    return SegmentLength(epochs, reason, epoch_seconds, overhead, resume, tier, interval)
