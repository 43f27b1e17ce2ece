"""The full budget under an early-stopping rule: a trial that lacks promise goes no further.

Every trial is looked at each ``every`` epochs. What is stopped is paused, as by a halving strategy.

- ``median`` (Golovin et al. 2017, "Google Vizier", section 3.2.2): stop at epoch e if the trial's
  best score so far is below the median of the other trials' running averages up to e.
- ``curve``: stop if the probability that the trial would end above the best one of those that were
  trained to the end, by its power law (``curves``), is below ``risk``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Literal

from ..model.trial_group import Entry, Pull, TrialGroup
from .learning_curve import probability_above


@dataclass(slots=True)
class Stopping:
    """State: running averages by epoch looked at and trial; the best score at the last epoch."""

    n_trials: int
    max_epochs: int
    every: int
    rule: str
    risk: float
    asked: int = 0
    averages: dict[int, dict[str, float]] = field(default_factory=dict)
    best: float | None = None
    kind: Literal["stopping"] = "stopping"

    def pull(self, free: int, ahead: int) -> Pull:
        """As many new configurations as there is room for.

        Not more: whoever waits in line goes before a trial that is between two looks, and a rule
        wants some that went all the way.
        """
        ask = min(free, self.n_trials - self.asked)
        self.asked += ask
        return Pull(ask=ask)

    def proposed(self, trials: tuple[str, ...], *, exhausted: bool) -> TrialGroup:
        """All of them, to the first look."""
        if exhausted:
            self.asked = self.n_trials
        return tuple(Entry(trial, min(self.every, self.max_epochs)) for trial in trials)

    def reached(self, trial: str, epoch: int, curve: Mapping[int, float]) -> TrialGroup:
        """On to the next look, or not."""
        if epoch == self.max_epochs:
            self.best = max(curve[epoch], curve[epoch] if self.best is None else self.best)
        others = self.averages.setdefault(epoch, {})
        stop = self._falls_behind(curve, others)
        others[trial] = sum(curve.values()) / len(curve)
        if stop or epoch == self.max_epochs:
            return ()
        return (Entry(trial, min(epoch + self.every, self.max_epochs)),)

    def left(self, trial: str) -> TrialGroup:
        """Nothing follows."""
        return ()

    def _falls_behind(self, curve: Mapping[int, float], others: Mapping[str, float]) -> bool:
        if self.rule == "median":
            return bool(others) and max(curve.values()) < median(others.values())
        if self.best is None:
            return False
        chance = probability_above(curve, self.max_epochs, self.best)
        return chance is not None and chance < self.risk
