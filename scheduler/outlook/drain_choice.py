"""Choice of the devices to drain when the operator wants a number of them free by a deadline.

The cost of a choice is the training time that is lost. An epoch that is expected to end before the
deadline costs nothing. For any other epoch, the time from its start to the deadline is lost on each
device that trains it. If no epochs of a study were measured, its epochs are assumed to end too
late.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..engine.engine import Engine
    from ..state.state import Attempt, EngineState

#: The longest time that an operator may give devices to become free (seconds).
MAX_WITHIN = 7 * 86400.0


def drainable(state: EngineState) -> list[str]:
    """Return the names of the joined devices that are not drained, in order."""
    return sorted(name for name in state.devices if not state.cordoned(name))


def choose_devices(engine: Engine, n: int, *, at: float, within: float) -> tuple[str, ...]:
    """Choose ``n`` ``drainable`` devices to drain, so they are free ``within`` seconds from ``at``.

    Idle devices come first, then those with the least to lose; ties are broken by name. A gang is
    lost only once, so its other devices cost nothing more.
    """
    with engine.state.costs.read_only():
        state = engine.state
        remaining, chosen = drainable(state), list[str]()
        fences = {0}

        def price(name: str) -> tuple[bool, float, str]:
            attempts = [state.attempts[f] for f in set(state.devices[name].fences) - fences]
            loss = sum(_loss(engine, attempt, at, within) for attempt in attempts)
            return bool(attempts), loss, name

        for _ in range(n):
            best = min(remaining, key=price)
            remaining.remove(best)
            chosen.append(best)
            fences.update(state.devices[best].fences)
        return tuple(chosen)


def _loss(engine: Engine, attempt: Attempt, at: float, within: float) -> float:
    """Return the seconds of training, summed over members, lost if the attempt must end in time."""
    segment = attempt.segment
    ends = engine.epoch_ends(attempt)
    if ends is not None and ends - at <= within:
        return 0.0
    spent = max(0.0, at - attempt.began)
    return (spent + within) * len(segment.members)
