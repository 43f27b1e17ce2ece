"""Population based training (Jaderberg et al. 2017).

Algorithm 1: each member of a population trains by itself. At the end of an interval (``ready``) it
is compared with the others. A member that falls behind takes over the weights and hyperparameters
of a better one (``exploit``), which are then changed a little (``explore``). It is asynchronous as
in the paper (section 3): no member waits for another, and a member is compared with the last known
scores of the others.

``exploit`` is truncation selection (section 4.1.1): a member in the bottom ``quantile`` of the
population takes over from a member sampled uniformly from the top ``quantile``. The population is
the members that have ended an interval; with n of them, the top and the bottom each have
``floor(quantile * n)``. Two conditions are added. The source must be better than the member, since
nothing is gained from an equal. And the source must have epochs left, since otherwise the new trial
would have none.

Here a trial's parameters never change. The member that falls behind is stopped, and a new trial
begins where the source's interval ended. ``explore`` is done by the samplers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from ..model.trial_group import Entry, Fork, Pull, TrialGroup
from .base import best_first


@dataclass(slots=True)
class Pbt:
    """The state machine of population based training."""

    #: Number of members of the population.
    n_trials: int
    #: The last epoch.
    max_epochs: int
    #: Number of epochs in an interval.
    interval: int
    #: The share of members that counts as the top, and as the bottom, of the population (0 to 1).
    quantile: float
    #: The seed for the choice of the members from which others continue.
    seed: int
    #: True once the sampler was asked for the population.
    asked: bool = False
    #: Number of forks so far (trials that continue from another member's state).
    forks: int = 0
    #: The members' scores at the end of their last interval.
    scores: dict[str, float] = field(default_factory=dict)
    #: The epoch at which each member's last interval ended.
    epochs: dict[str, int] = field(default_factory=dict)
    #: Distinguishes strategies in a snapshot.
    kind: Literal["pbt"] = "pbt"

    def pull(self, free: int, ahead: int, early: int | None = None) -> Pull:
        """Ask for the whole population in the first call, and for nothing later.

        If there are fewer slots than members, the members take turns.
        """
        if self.asked:
            return Pull()
        self.asked = True
        return Pull(ask=self.n_trials)

    def proposed(self, trials: tuple[str, ...], *, exhausted: bool) -> TrialGroup:
        """Train every new trial to the end of the first interval."""
        return tuple(Entry(trial, self._interval_end(0)) for trial in trials)

    def reached(
        self, trial: str, epoch: int, curve: Mapping[int, float]
    ) -> tuple[Entry | Fork, ...]:
        """Train the trial for another interval, or replace the trial by a fork of a better member.

        Return an empty group if the trial has reached the last epoch.
        """
        self.scores[trial], self.epochs[trial] = curve[epoch], epoch
        if epoch == self.max_epochs:
            return ()
        source = self._source(trial)
        if source is None:
            return (Entry(trial, self._interval_end(epoch)),)
        self.abandoned(trial)
        begin = self.epochs[source]
        return (Fork(trial, source, begin, self._interval_end(begin)),)

    def abandoned(self, trial: str) -> TrialGroup:
        """Remove the trial from the population, so that no member is compared with the trial."""
        self.scores.pop(trial, None)
        self.epochs.pop(trial, None)
        return ()

    def _interval_end(self, epoch: int) -> int:
        return min(epoch + self.interval, self.max_epochs)

    def _source(self, trial: str) -> str | None:
        """Return the better member that is to be forked in place of ``trial``.

        Return None if ``trial`` is not at the bottom, or if no member at the top qualifies.
        """
        ranking = best_first(self.scores)
        size = int(self.quantile * len(ranking))
        if trial not in ranking[len(ranking) - size :]:
            return None
        better = [
            member
            for member in ranking[:size]
            if self.scores[member] > self.scores[trial] and self.epochs[member] < self.max_epochs
        ]
        if not better:
            return None
        self.forks += 1
        digest = hashlib.sha256(f"{self.seed} exploit {self.forks}".encode()).digest()
        return better[int.from_bytes(digest[:8], "big") % len(better)]
