"""Lane time: which part of a lane's time each of its residents has, and what that has come to.

Theory of operation. The residents of a lane take turns in proportion to the weights of their turns;
one of weight 0 has turns only while there is no other (``tasks``: weighted deficit round robin). So
each has a *part* of the lane's time, and the parts add up to 1. The engine is not told of turns: it
adds the parts up, from one change of a lane's residents or weights to the next. Costs never come
from this but from the seconds that epochs report, which are time in turn.

Attempts that have their lane by construction are not counted: where lanes have one seat, and gangs.
"""

from __future__ import annotations

from .state import Attempt, DeviceState, EngineState


def residents(state: EngineState, device: DeviceState, lane: int) -> list[Attempt]:
    """The attempts in the seats of ``lane``, in the order of their dispatch."""
    fences = {device.fences[slot] for slot in device.seats_of(lane)}
    return [state.attempts[fence] for fence in sorted(fences) if fence]


def lane_seconds(attempt: Attempt, at: float) -> float:
    """The time of one lane, or slot, that the attempt has had until ``at`` (seconds)."""
    if attempt.counted_at is None:
        return at - attempt.dispatched_at
    return attempt.in_turn + attempt.part * max(0.0, at - attempt.counted_at)


def waited_in_seat(attempt: Attempt, at: float) -> float:
    """Since when the attempt has had no turn, if it has none now (seconds)."""
    if attempt.counted_at is None or attempt.part:
        return 0.0
    return max(0.0, at - attempt.counted_at)


def settle(state: EngineState, attempt: Attempt, at: float) -> None:
    """Count what the attempt has had until ``at``. Time without a turn is time of waiting."""
    if attempt.counted_at is None:
        return
    if state.cross_study:
        state.trials[attempt.segment.trial].waited += waited_in_seat(attempt, at)
    attempt.in_turn = lane_seconds(attempt, at)
    attempt.counted_at = at


def divide_lane(state: EngineState, device: DeviceState, lane: int, at: float) -> None:
    """Give each resident of ``lane`` its part from ``at`` on, by the weights of their turns."""
    found = [each for each in residents(state, device, lane) if each.counted_at is not None]
    total = sum(each.weight for each in found)
    for each in found:
        settle(state, each, at)
        each.part = each.weight / total if total else 1.0 / len(found)
        each.accompanied = each.accompanied or len(found) > 1
