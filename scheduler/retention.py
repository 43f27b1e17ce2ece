"""Which durable states are kept: those that a restart may need, and what a user may want later.

- A trial in the race: its newest ``PARENTS_KEPT`` states, and those after rungs of the strategy,
  where trials are compared. In population based training these are the end of its last interval,
  which others may go on from, and the state that it was itself forked from.
- A trial that is over: its last state, if it is among the study's best; else none.

The best are the completed trials with the best values, as many as the study keeps. A study that
ends without a completed trial has the best of those that were trained longest.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from .decisions import Parent
from .trial import FINAL, Trial, TrialState

#: States that a trial in the race may be restarted from: the newest, and older ones should a file
#: turn out to be damaged.
PARENTS_KEPT = 3


def retained(trial: Trial, rung_edges: Collection[int], *, best: bool) -> tuple[Parent, ...]:
    """Those of the trial's durable states (newest first) that are kept, in the same order."""
    if trial.state in FINAL:
        return trial.parents[: 1 if best else 0]
    newest, older = trial.parents[:PARENTS_KEPT], trial.parents[PARENTS_KEPT:]
    return (*newest, *(state for state in older if state.epoch in rung_edges))


def best_completed(trials: Iterable[Trial], sign: float, k: int) -> list[str]:
    """The ``k`` best completed trials, best first; equal values in the order of their numbers."""
    return _best((t for t in trials if t.state is TrialState.COMPLETED), sign, k)


def best_at_the_end(trials: Iterable[Trial], sign: float, k: int) -> list[str]:
    """The ``k`` best trials of a study that is over."""
    there = [t for t in trials if t.state is not TrialState.FAILED and t.value is not None]
    if not any(t.state is TrialState.COMPLETED for t in there):
        longest = max((t.epoch for t in there), default=0)
        return _best((t for t in there if t.epoch == longest), sign, k)
    return best_completed(there, sign, k)


def _best(trials: Iterable[Trial], sign: float, k: int) -> list[str]:
    valued = [(-sign * t.value, t.number, t.id) for t in trials if t.value is not None]
    return [name for _, _, name in sorted(valued)[:k]]
