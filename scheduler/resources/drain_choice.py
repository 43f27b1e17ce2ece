"""Which devices to take out when the operator wants some number of them free by a deadline.

What is lost by it is the part of an epoch that is thrown away. An epoch that is expected to end
before the deadline loses nothing; any other loses what was spent on it until then, on every one of
its members. An epoch of a study of which nothing was measured counts as one that does not end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..state.state import Attempt, EngineState

#: The longest time that an operator gives devices to become free (seconds).
LONGEST_WITHIN = 7 * 86400.0


def freeable(state: EngineState) -> list[str]:
    """The joined devices that nobody drains, by name."""
    return sorted(name for name in state.devices if not state.closed(name))


def choose(state: EngineState, n: int, *, at: float, within: float) -> tuple[str, ...]:
    """``n`` of the devices that are ``freeable``, to be free ``within`` seconds from ``at``.

    Idle ones come first, then those with the least to lose; ties go by name. A gang is lost once,
    so the other devices of one that stops anyway cost nothing more.
    """
    with state.costs.looked_at():
        return _choose(state, n, at, within)


def _choose(state: EngineState, n: int, at: float, within: float) -> tuple[str, ...]:
    left, chosen = freeable(state), list[str]()
    stopped = {0}

    def price(name: str) -> tuple[bool, float, str]:
        attempts = [state.attempts[f] for f in set(state.devices[name].fences) - stopped]
        loss = sum(_loss(state, attempt, at, within) for attempt in attempts)
        return bool(attempts), loss, name

    for _ in range(n):
        best = min(left, key=price)
        left.remove(best)
        chosen.append(best)
        stopped.update(state.devices[best].fences)
    return tuple(chosen)


def _loss(state: EngineState, attempt: Attempt, at: float, within: float) -> float:
    """Seconds of training, summed over members, that end with nothing if it must stop in time."""
    segment = attempt.segment
    ends = state.epoch_ends(attempt)
    if ends is not None and ends - at <= within:
        return 0.0
    spent = max(0.0, at - attempt.began)
    return (spent + within) * len(segment.members)
