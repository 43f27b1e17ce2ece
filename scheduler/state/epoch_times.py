"""When the epochs that are being trained are expected to end.

Theory of operation. The cost table has what an epoch takes of its trial alone. It takes longer
where several lanes of its device are at work (``EngineState.slowdown``), and less time in turn
where it has company (``Company.pace``).
"""

from __future__ import annotations

from .extensions import Extensions
from .slot_time import slot_seconds
from .state import Attempt, EngineState


def epoch_ends(state: EngineState, extensions: Extensions, attempt: Attempt) -> float | None:
    """When its current epoch is expected to end (the runner's clock).

    None if that is not known, if it measures widths, or if it has no turn for now.
    """
    if attempt.counted_at is not None:
        left = epoch_left(state, extensions, attempt)
        ends = None if left is None or not attempt.part else left / attempt.part
        return None if ends is None else attempt.counted_at + ends
    trial = state.trials[attempt.segment.trial]
    seconds = state.seconds_at(trial, len(attempt.segment.members))
    if seconds is None or attempt.segment.widths:
        return None
    begun = attempt.began + seconds * state.slowdown(attempt)
    just_resized = attempt.resized and attempt.began == attempt.dispatched_at
    return begun + state.costs.resize if just_resized else begun


def next_epochs(state: EngineState, extensions: Extensions, attempt: Attempt) -> float | None:
    """How long each of its next epochs is expected to take by the clock (seconds), as things are.

    None if that is not known, or if it has no turn for now.
    """
    width = len(attempt.segment.members)
    seconds = state.seconds_at(state.trials[attempt.segment.trial], width)
    if seconds is None or not attempt.part:
        return None
    part = 1.0 if attempt.counted_at is None else attempt.part
    return seconds * state.slowdown(attempt) * extensions.company.pace(attempt) / part


def epoch_left(state: EngineState, extensions: Extensions, attempt: Attempt) -> float | None:
    """The time in turn that its current epoch still needs (seconds, from ``counted_at`` on).

    For attempts whose time in turn is counted; None if not known.
    """
    seconds = state.seconds_at(state.trials[attempt.segment.trial], 1)
    if seconds is None or attempt.segment.widths:
        return None
    had = attempt.in_turn - attempt.epoch_from
    seconds *= state.slowdown(attempt) * extensions.company.pace(attempt)
    return max(0.0, seconds - had)


def to_boundary(state: EngineState, extensions: Extensions, attempt: Attempt, at: float) -> float:
    """Expected seconds until the current epoch ends; of turns, where those are counted.

    0 if that is not known.
    """
    if attempt.counted_at is None:
        ends = epoch_ends(state, extensions, attempt)
        return 0.0 if ends is None else max(0.0, ends - at)
    left = epoch_left(state, extensions, attempt)
    since = slot_seconds(attempt, at) - attempt.in_turn
    return 0.0 if left is None else max(0.0, left - since)
