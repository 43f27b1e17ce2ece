"""Why a segment has as many epochs as it has, in words."""

from __future__ import annotations

from ...profiling.costs.segment_costs import SegmentStart
from ...scheduler.model.segment_length import LengthReason, SegmentLength
from ...scheduler.policies.segments import MAX_DELAY, MAX_OVERHEAD
from ..common.text import count, duration

#: What limits a length, where it is not what segments cost.
_LIMITS = {
    LengthReason.TARGET: "up to its target",
    LengthReason.STUDY: "the most that a segment has",
    LengthReason.PLAN: "then the plan changes its width",
    LengthReason.PROBE: "system parameters are measured in it",
    LengthReason.LIMIT: "its study comes near a limit",
    LengthReason.UNMEASURED: "how long one takes is not known yet",
}
#: The bounds that hold where costs alone would say another length.
_BOUNDS = {
    LengthReason.OVERHEAD: f"; overhead is to take {MAX_OVERHEAD:.0%} at most",
    LengthReason.DELAY: f"; nobody is to wait for more than {MAX_DELAY:g} s",
}
_TIERS = {SegmentStart.TRAINER: "in the trainer", SegmentStart.STORE: "from the store"}


def length_words(length: SegmentLength) -> str:
    """``length`` in a line: *5 epochs: overhead 12 ms, resume 3 ms in the trainer, ...*."""
    head = count(length.epochs, "epoch")
    if (limit := _LIMITS.get(length.reason)) is not None:
        return f"{head}: {limit}"
    if length.reason is LengthReason.EPOCH:
        return f"{head}: it takes {_time(length.epoch_seconds or 0.0)}"
    return (
        f"{head}: overhead {_time(length.overhead)}, resume {_time(length.resume)}"
        f" {_TIERS[length.tier]}, a preemption expected every {duration(length.interval)}"
        f"{_BOUNDS.get(length.reason, '')}"
    )


def _time(seconds: float) -> str:
    """``12 ms`` below a second, else as ``duration``."""
    return f"{1e3 * seconds:.3g} ms" if seconds < 1.0 else duration(seconds)
