"""The full budget under an early-stopping rule: a trial without promise goes no further.

The rule looks at every trial after each ``every`` epochs. A stopped trial is paused, as by a
halving strategy.

- ``median`` (Golovin et al. 2017, "Google Vizier", section 3.2.2): stop at epoch e if the trial's
  best score so far is below the median of the other trials' running averages up to e.
- ``curve``: stop if the trial will probably not beat the best of the trials that were trained to
  the end: by its power law (``learning_curve``), the probability is below ``risk``.
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
    """The state machine of an early-stopping rule."""

    #: Number of trials the study is to have.
    n_trials: int
    #: The last epoch.
    max_epochs: int
    #: Epochs between two looks.
    every: int
    #: ``median`` or ``curve``.
    rule: str
    #: ``curve`` only: the probability below which a trial is stopped.
    risk: float
    #: Number of configurations asked for.
    asked: int = 0
    #: Running averages, by the epoch of a look and by trial.
    averages: dict[int, dict[str, float]] = field(default_factory=dict)
    #: The best score at the last epoch; None before any trial has one.
    best: float | None = None
    #: Distinguishes strategies in a snapshot.
    kind: Literal["stopping"] = "stopping"

    def pull(self, free: int, ahead: int, early: int | None = None) -> Pull:
        """Ask for as many new configurations as there are free slots.

        It asks for no more, since new trials in the queue would go before a trial that waits
        between two looks, and a rule needs some trials that were trained to the end. Until there is
        such a trial, ``curve`` stops no trial, so slots that cost nothing to leave free wait for
        one.
        """
        if early is not None and self.rule == "curve" and self.best is None:
            return Pull()
        ask = min(free, self.n_trials - self.asked)
        self.asked += ask
        return Pull(ask=ask)

    def proposed(self, trials: tuple[str, ...], *, exhausted: bool) -> TrialGroup:
        """Train every new trial to the first look."""
        if exhausted:
            self.asked = self.n_trials
        return tuple(Entry(trial, min(self.every, self.max_epochs)) for trial in trials)

    def reached(self, trial: str, epoch: int, curve: Mapping[int, float]) -> TrialGroup:
        """Train the trial to its next look, unless the rule stops it."""
        if epoch == self.max_epochs:
            self.best = max(curve[epoch], curve[epoch] if self.best is None else self.best)
        averages = self.averages.setdefault(epoch, {})
        stop = self._falls_behind(curve, averages)
        averages[trial] = sum(curve.values()) / len(curve)
        if stop or epoch == self.max_epochs:
            return ()
        return (Entry(trial, min(epoch + self.every, self.max_epochs)),)

    def abandoned(self, trial: str) -> TrialGroup:
        """Return nothing: no other trial takes the place of an abandoned one."""
        return ()

    def _falls_behind(self, curve: Mapping[int, float], others: Mapping[str, float]) -> bool:
        if self.rule == "median":
            return bool(others) and max(curve.values()) < median(others.values())
        if self.best is None:
            return False
        probability = probability_above(curve, self.max_epochs, self.best)
        return probability is not None and probability < self.risk
