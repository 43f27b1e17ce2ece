"""Slot time: the time of its slot or lane that an attempt has had.

Theory of operation. Mostly an attempt has all of its slot's time. If several attempts share a lane,
each has a *part* of the lane's time; the parts add up to 1, and an extension sets them
(``Extension.seats``). The engine is not told of single turns: it adds up each part over time, from
one change of the parts to the next. The cost table does not use this estimate, but the seconds that
epochs report, which count only turns.
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
    """Add the attempt's slot time until ``at`` to ``in_turn``. Time without a part is a wait.

    Call this only for attempts whose time in turn is counted (``counted_at`` is not None).
    """
    if state.cross_study:
        waits = state.waits.setdefault(attempt.segment.trial, Waits())
        waits.waited += seconds_without_part(attempt, at)
    attempt.in_turn = slot_seconds(attempt, at)
    attempt.counted_at = at
