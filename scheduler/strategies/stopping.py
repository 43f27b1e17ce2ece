"""The early-stopping strategies: train every trial to the last epoch unless a rule stops it.

The rule judges a trial each time the trial has been trained for another ``every`` epochs. A trial
that the rule stops is paused, so that a user can continue it.

- ``median`` (Golovin et al. 2017, "Google Vizier", section 3.2.2): stop at epoch e if the trial's
  best score so far is below the median of the other trials' running averages up to e.
- ``curve``: stop if the trial will probably not beat the best trial that was trained to the end.
  The module ``learning_curve`` extrapolates the trial's scores by power laws. The trial is stopped
  if the probability that it scores higher at the last epoch is below ``risk``.
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
    #: Number of epochs between two decisions of the rule about the same trial.
    every: int
    #: The name of the rule: ``median`` or ``curve``.
    rule: str
    #: The probability below which the rule ``curve`` stops a trial. ``median`` does not use it.
    risk: float
    #: Number of configurations that the sampler was asked for so far.
    asked: int = 0
    #: The mean of each trial's scores up to an epoch, by that epoch and by trial.
    averages: dict[int, dict[str, float]] = field(default_factory=dict)
    #: The best score at the last epoch, or None before any trial has reached the last epoch.
    best: float | None = None
    #: Distinguishes strategies in a snapshot.
    kind: Literal["stopping"] = "stopping"

    def pull(self, free: int, ahead: int, early: int | None = None) -> Pull:
        """Ask for as many new configurations as there are free slots.

        The strategy does not ask ahead. New trials in the queue would run before trials that wait
        for their next epochs, but a rule needs some trials that were trained to the end. Until a
        trial has reached the last epoch, ``curve`` cannot stop any trial. So if ``early`` is not
        None, ``curve`` asks for no configuration before then.
        """
        if early is not None and self.rule == "curve" and self.best is None:
            return Pull()
        ask = min(free, self.n_trials - self.asked)
        self.asked += ask
        return Pull(ask=ask)

    def proposed(self, trials: tuple[str, ...], *, exhausted: bool) -> TrialGroup:
        """Train every new trial up to the epoch at which the rule first judges the trial."""
        if exhausted:
            self.asked = self.n_trials
        return tuple(Entry(trial, min(self.every, self.max_epochs)) for trial in trials)

    def reached(self, trial: str, epoch: int, curve: Mapping[int, float]) -> TrialGroup:
        """Train the trial for another ``every`` epochs, unless the rule stops the trial."""
        if epoch == self.max_epochs:
            self.best = max(curve[epoch], curve[epoch] if self.best is None else self.best)
        averages = self.averages.setdefault(epoch, {})
        stop = self._falls_behind(curve, averages)
        averages[trial] = sum(curve.values()) / len(curve)
        if stop or epoch == self.max_epochs:
            return ()
        return (Entry(trial, min(epoch + self.every, self.max_epochs)),)

    def abandoned(self, trial: str) -> TrialGroup:
        """Return an empty group, because no other trial replaces an abandoned trial."""
        return ()

    def _falls_behind(self, curve: Mapping[int, float], others: Mapping[str, float]) -> bool:
        if self.rule == "median":
            return bool(others) and max(curve.values()) < median(others.values())
        if self.best is None:
            return False
        probability = probability_above(curve, self.max_epochs, self.best)
        return probability is not None and probability < self.risk
