"""Slot time: an attempt's part of its slot's time, and the sum of that part until now.

Theory of operation. Most attempts have all of their slot's time. If several share a lane, each has
a *part* of the lane's time, and the parts add up to 1; an extension divides them
(``Extension.seats``). The engine is not told of single turns: it sums the part over time, from one
change of the parts to the next. Costs never come from this sum, but from the seconds that epochs
report, which are time in turn.
"""

from __future__ import annotations

from .state import Attempt, EngineState, Waits


def slot_seconds(attempt: Attempt, at: float) -> float:
    """Return the time of one slot that the attempt has had until ``at`` (seconds)."""
    if attempt.counted_at is None:
        return at - attempt.dispatched_at
    return attempt.in_turn + attempt.part * max(0.0, at - attempt.counted_at)


def seconds_without_part(attempt: Attempt, at: float) -> float:
    """Return the seconds since the attempt last had a part of its lane; 0 if it has one now."""
    if attempt.counted_at is None or attempt.part:
        return 0.0
    return max(0.0, at - attempt.counted_at)


def settle(state: EngineState, attempt: Attempt, at: float) -> None:
    """Count the attempt's slot time until ``at``. Time without a part counts as waiting.

    Call this only for attempts whose time in turn is counted.
    """
    if state.cross_study:
        waits = state.waits.setdefault(attempt.segment.trial, Waits())
        waits.waited += seconds_without_part(attempt, at)
    attempt.in_turn = slot_seconds(attempt, at)
    attempt.counted_at = at
