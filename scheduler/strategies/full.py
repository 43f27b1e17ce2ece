"""Full budget: every configuration is trained to the last epoch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from ..model.trial_group import Entry, Pull, TrialGroup


@dataclass(slots=True)
class FullBudget:
    """Ask for ``n_trials`` configurations and train each to ``max_epochs``."""

    n_trials: int
    max_epochs: int
    asked: int = 0
    kind: Literal["full"] = "full"

    def pull(self, free: int, ahead: int, early: int | None = None) -> Pull:
        """Ask for a new configuration for each free slot, or for all that may be asked ahead."""
        ask = min(max(free, ahead), self.n_trials - self.asked)
        self.asked += ask
        return Pull(ask=ask)

    def proposed(self, trials: tuple[str, ...], *, exhausted: bool) -> TrialGroup:
        """Train every new trial to the last epoch."""
        if exhausted:
            self.asked = self.n_trials
        return tuple(Entry(trial, self.max_epochs) for trial in trials)

    def reached(self, trial: str, epoch: int, curve: Mapping[int, float]) -> TrialGroup:
        """Return nothing: the target was the last epoch."""
        return ()

    def abandoned(self, trial: str) -> TrialGroup:
        """Return nothing: no other trial takes the place of an abandoned one."""
        return ()
