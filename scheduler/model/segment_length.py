"""The chosen length of a segment, and the reason for it."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from ...profiling.costs.segment_costs import SegmentStart


class LengthReason(StrEnum):
    """Reason for the length of a segment."""

    BALANCE = "balance"  # the segment's overhead and the waiting of other trials cost the same
    OVERHEAD = "overhead"  # a shorter segment would have too large a share of overhead
    DELAY = "delay"  # a longer segment would let other trials wait for too long
    EPOCH = "epoch"  # one epoch is as long as a segment should be, or longer
    TARGET = "target"  # the trial reaches its target at the segment's end
    STUDY = "study"  # the study's own limit for segments (``StudySpec.max_segment``)
    PLAN = "plan"  # the plan changes the trial's width at the segment's end
    PROBE = "probe"  # system parameters are measured in the segment's one epoch
    LIMIT = "limit"  # the study comes near a limit
    UNMEASURED = "unmeasured"  # it is not known how long an epoch takes


class SegmentLength(NamedTuple):
    """Number of epochs of a segment, and the reason for it."""

    epochs: int
    reason: LengthReason
    #: The expected seconds of an epoch; None if none was measured.
    epoch_seconds: float | None = None
    #: The fixed overhead of a segment (seconds).
    overhead: float = 0.0
    #: Additional cost of resuming after a preemption (seconds), and the kind of start that this is.
    resume: float = 0.0
    tier: SegmentStart = SegmentStart.TRAINER
    #: Mean seconds between two preemptions of a slot.
    interval: float = 0.0
