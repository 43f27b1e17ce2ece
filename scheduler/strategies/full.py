"""Full budget: every configuration is trained to the last epoch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from ..model.trial_group import Entry, Pull, TrialGroup


@dataclass(slots=True)
class FullBudget:
    """The strategy that asks for ``n_trials`` configurations and trains each to ``max_epochs``."""

    n_trials: int
    max_epochs: int
    asked: int = 0
    kind: Literal["full"] = "full"

    def pull(self, free: int, ahead: int, early: int | None = None) -> Pull:
        """Ask for ``free`` or ``ahead`` new configurations, whichever number is larger.

        Never ask for more configurations than the study still needs.
        """
        ask = min(max(free, ahead), self.n_trials - self.asked)
        self.asked += ask
        return Pull(ask=ask)

    def proposed(self, trials: tuple[str, ...], *, exhausted: bool) -> TrialGroup:
        """Train every new trial to the last epoch."""
        if exhausted:
            self.asked = self.n_trials
        return tuple(Entry(trial, self.max_epochs) for trial in trials)

    def reached(self, trial: str, epoch: int, curve: Mapping[int, float]) -> TrialGroup:
        """Return an empty group, because the trial has reached its last epoch."""
        return ()

    def abandoned(self, trial: str) -> TrialGroup:
        """Return an empty group, because no other trial replaces an abandoned trial."""
        return ()
