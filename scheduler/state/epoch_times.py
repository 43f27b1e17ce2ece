"""Expected ends of the epochs that are being trained.

Theory of operation. The cost table has the time of an epoch of a trial that is alone on its
devices. Two factors change that time: the other lanes in use of its device
(``EngineState.slowdown``), and its fused group (``FusedGroups.pace``). If a trial shares a lane,
its *time in turn* is the time during which it has the lane.
"""

from __future__ import annotations

from .extensions import Extensions
from .slot_time import slot_seconds
from .state import Attempt, EngineState


def epoch_ends(state: EngineState, extensions: Extensions, attempt: Attempt) -> float | None:
    """Return when the attempt's current epoch is expected to end (the runner's clock).

    The result is None if this is not known, if the attempt measures widths, or if it has no turns
    in its lane now.
    """
    if attempt.counted_at is not None:
        remaining = epoch_left(state, extensions, attempt)
        ends = None if remaining is None or not attempt.part else remaining / attempt.part
        return None if ends is None else attempt.counted_at + ends
    trial = state.trials[attempt.segment.trial]
    seconds = state.seconds_at(trial, len(attempt.segment.members))
    if seconds is None or attempt.segment.widths:
        return None
    begun = attempt.began + seconds * state.slowdown(attempt)
    just_resized = attempt.resized and attempt.began == attempt.dispatched_at
    return begun + state.costs.resize if just_resized else begun


def next_epochs(state: EngineState, extensions: Extensions, attempt: Attempt) -> float | None:
    """Return the wall time that each of the attempt's next epochs is expected to take (seconds).

    The result is None if this is not known, or if the attempt has no turns in its lane now.
    """
    width = len(attempt.segment.members)
    seconds = state.seconds_at(state.trials[attempt.segment.trial], width)
    if seconds is None or not attempt.part:
        return None
    part = 1.0 if attempt.counted_at is None else attempt.part
    return seconds * state.slowdown(attempt) * extensions.fused_groups.pace(attempt) / part


def epoch_left(state: EngineState, extensions: Extensions, attempt: Attempt) -> float | None:
    """Return the time in turn that the attempt's current epoch still needs after ``counted_at``.

    The result is in seconds, or None if it is not known. Call this only for attempts whose time in
    turn is counted (``counted_at`` is not None).
    """
    seconds = state.seconds_at(state.trials[attempt.segment.trial], 1)
    if seconds is None or attempt.segment.widths:
        return None
    had = attempt.in_turn - attempt.epoch_from
    seconds *= state.slowdown(attempt) * extensions.fused_groups.pace(attempt)
    return max(0.0, seconds - had)


def to_boundary(state: EngineState, extensions: Extensions, attempt: Attempt, at: float) -> float:
    """Return the expected seconds from ``at`` until the current epoch ends; 0 if not known.

    These are seconds of time in turn if the attempt's time in turn is counted.
    """
    if attempt.counted_at is None:
        ends = epoch_ends(state, extensions, attempt)
        return 0.0 if ends is None else max(0.0, ends - at)
    remaining = epoch_left(state, extensions, attempt)
    since = slot_seconds(attempt, at) - attempt.in_turn
    return 0.0 if remaining is None else max(0.0, remaining - since)
