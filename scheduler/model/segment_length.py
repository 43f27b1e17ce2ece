"""The chosen length of a segment, and the reason for it."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from ...profiling.costs.segment_costs import SegmentStart


class LengthReason(StrEnum):
    """Reason for the length of a segment."""

    BALANCE = "balance"  # the overhead costs as much as the wait of other trials
    OVERHEAD = "overhead"  # overhead would take too large a part of a shorter segment
    DELAY = "delay"  # other trials would wait too long for the end of a longer segment
    EPOCH = "epoch"  # one epoch takes at least as long as a segment should
    TARGET = "target"  # the trial reaches its target
    STUDY = "study"  # the study's longest segment (``StudySpec.max_segment``)
    PLAN = "plan"  # the trial's width plan changes its width after the segment
    PROBE = "probe"  # an extension wants one epoch, in which it measures system parameters
    LIMIT = "limit"  # the study is near a limit of time or cost
    UNMEASURED = "unmeasured"  # the time of an epoch is not known


class SegmentLength(NamedTuple):
    """Number of epochs of a segment, with the reason and the estimates that led to it."""

    epochs: int
    reason: LengthReason
    #: The expected seconds of an epoch; None if none was measured.
    epoch_seconds: float | None = None
    #: The fixed overhead of a segment (seconds).
    overhead: float = 0.0
    #: The additional cost of resuming the trial after a preemption (seconds).
    resume: float = 0.0
    #: The assumed place of the trial's state when the trial resumes after a preemption.
    tier: SegmentStart = SegmentStart.TRAINER
    #: Mean seconds of work between two preemptions of a slot.
    interval: float = 0.0
