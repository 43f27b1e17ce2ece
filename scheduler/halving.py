"""Synchronous successive halving (Jamieson & Talwalkar 2016; Li et al. 2018, Algorithm 1).

Rung k holds ``n_k = floor(n / eta**k)`` trials trained to ``levels[k]`` epochs. When all of a rung
have reached it (or failed), the best ``n_{k+1}`` go on together; at least one, so that the study
ends with a trial at the last epoch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from .strategy import Entry, Pull, TrialGroup, best_first


@dataclass(slots=True)
class SuccessiveHalving:
    """State: the rung at work, who is still on the way to it, and the scores of those there."""

    n_trials: int
    eta: int
    levels: tuple[int, ...]
    asked: bool = False
    rung: int = 0
    size: int = 0
    waiting: list[str] = field(default_factory=list)
    scores: dict[str, float] = field(default_factory=dict)
    kind: Literal["halving"] = "halving"

    def pull(self, free: int, ahead: int) -> Pull:
        """All configurations at once, the first time; later groups come from ``reached``."""
        if self.asked:
            return Pull()
        self.asked = True
        return Pull(ask=self.n_trials)

    def proposed(self, trials: tuple[str, ...], *, exhausted: bool) -> TrialGroup:
        """The whole first rung as one TrialGroup."""
        self.size = len(trials)
        self.waiting = list(trials)
        return tuple(Entry(trial, self.levels[0]) for trial in trials)

    def reached(self, trial: str, epoch: int, score: float) -> TrialGroup:
        """Note the score; the last one of a rung starts the next."""
        self.waiting.remove(trial)
        self.scores[trial] = score
        return self._advance()

    def left(self, trial: str) -> TrialGroup:
        """A failed trial no longer holds its rung up."""
        if trial in self.waiting:
            self.waiting.remove(trial)
        return self._advance()

    def _advance(self) -> TrialGroup:
        if self.waiting or self.rung + 1 == len(self.levels):
            return ()
        self.size = max(1, self.size // self.eta)
        # Equal scores by number, not by arrival: one seed has one result on any number of devices.
        chosen = best_first(dict(sorted(self.scores.items())))[: self.size]
        self.rung += 1
        # Only those going on can reach the next rung, in the order of their numbers.
        self.waiting = sorted(chosen)
        self.scores = {}
        return tuple(Entry(trial, self.levels[self.rung]) for trial in self.waiting)
