"""Synchronous successive halving (Jamieson & Talwalkar 2016; Li et al. 2018, Algorithm 1).

Rung k is for ``n_k = floor(n / eta**k)`` trials trained to ``levels[k]`` epochs. When all trials of
a rung have reached it (or failed), the best ``n_{k+1}`` go on; at least one, so that there is a
trial at the last epoch. Equal scores are ordered by trial number, so one seed has one result on any
number of devices.

Theory of operation. Early promotion: a trial that will be among the best ``n_{k+1}``, whatever the
rest of its rung scores, goes on at once. The i-th best of the trials that have arrived (from 0) is
certain when i plus the number of trials still to come is below ``n_{k+1}``. So the same trials
reach the same rungs as without early promotion; the barrier only costs less.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from ..model.trial_group import Entry, Pull, TrialGroup
from .base import best_first


@dataclass(slots=True)
class Rung:
    """One rung, meant for ``size`` trials.

    ``waiting`` are the trials on their way to it, ``scores`` those that have arrived. ``promoted``
    are the trials that went on, and ``sent`` those of them that their user sent on. ``dropped`` is
    the number of trials that were meant for the rung and will never arrive, and ``extra`` the
    number of ``size`` that came beyond its quota.
    """

    size: int
    waiting: list[str] = field(default_factory=list)
    scores: dict[str, float] = field(default_factory=dict)
    promoted: list[str] = field(default_factory=list)
    dropped: int = 0
    sent: list[str] = field(default_factory=list)
    extra: int = 0

    @property
    def expected(self) -> int:
        return self.size - self.dropped - len(self.scores)

    @property
    def quota(self) -> int:
        """The number of trials that the rule promotes to the rung."""
        return self.size - self.extra

    def grow(self, by: int) -> None:
        """Make room for ``by`` trials beyond the quota."""
        self.size += by
        self.extra += by


@dataclass(slots=True)
class SuccessiveHalving:
    """The state machine of one successive halving."""

    #: Number of configurations in the first rung.
    n_trials: int
    #: One trial of this many at a rung is promoted.
    eta: int
    #: The epochs of the rungs, rising.
    levels: tuple[int, ...]
    #: True if the configurations were asked for.
    asked: bool = False
    #: Trials that were abandoned while they waited at a rung. Others are promoted in their place.
    abandoned_trials: list[str] = field(default_factory=list)
    #: The rungs from the first one on; empty until the configurations are known.
    rungs: list[Rung] = field(default_factory=list)
    #: Distinguishes strategies in a snapshot.
    kind: Literal["halving"] = "halving"

    @property
    def over(self) -> bool:
        """True if every trial that can reach the last rung has reached it."""
        return bool(self.rungs) and not any(rung.expected for rung in self.rungs)

    def pull(self, free: int, ahead: int, early: int | None = None) -> Pull:
        """Ask for all configurations in the first call. Later groups come from ``reached``."""
        if self.asked:
            return Pull()
        self.asked = True
        return Pull(ask=self.n_trials)

    def proposed(self, trials: tuple[str, ...], *, exhausted: bool) -> TrialGroup:
        """Return the whole first rung as one TrialGroup."""
        size = len(trials)
        for _ in self.levels:
            self.rungs.append(Rung(size))
            size = max(1, size // self.eta) if trials else 0
        self.rungs[0].waiting = list(trials)
        return tuple(Entry(trial, self.levels[0]) for trial in trials)

    def reached(self, trial: str, epoch: int, curve: Mapping[int, float]) -> TrialGroup:
        """Note the score of ``trial``, and promote the trials that are certain now.

        A rung that did not wait for the trial counts it as an additional trial, so that the number
        of promotions of other trials stays the same.
        """
        if not self.rungs or epoch not in self.levels:
            return ()
        level = self.levels.index(epoch)
        rung = self.rungs[level]
        if trial in rung.scores:  # its objective has returned only now
            return self._promote()
        if trial in rung.waiting:
            rung.waiting.remove(trial)
        else:
            self._count_late(trial, level)
        rung.scores[trial] = curve[epoch]
        return self._promote()

    def _count_late(self, trial: str, level: int) -> None:
        """Make room at a rung for a trial that it did not wait for, or no longer waits for."""
        if trial in self.abandoned_trials:
            self.abandoned_trials.remove(trial)
        below = self.rungs[level - 1] if level else None
        if below is not None and trial in below.promoted and trial not in below.sent:
            self.rungs[level].dropped -= 1  # it was meant for the rung
            return
        self.rungs[level].grow(1)
        for lower in self.rungs[:level]:
            if trial not in lower.promoted:
                lower.promoted.append(trial)
                lower.sent.append(trial)

    def abandoned(self, trial: str) -> TrialGroup:
        """Stop waiting for a trial that failed, and promote the trials that are certain now."""
        waits = [rung for rung in self.rungs if trial in rung.waiting]
        for rung in waits:
            rung.waiting.remove(trial)
            rung.dropped += 1
        if not waits and trial not in self.abandoned_trials:
            self.abandoned_trials.append(trial)
        return self._promote()

    def _promote(self) -> TrialGroup:
        group: list[Entry] = []
        for k in range(len(self.levels) - 1):
            rung, next_rung = self.rungs[k], self.rungs[k + 1]
            ranking = [
                trial
                for trial in best_first(dict(sorted(rung.scores.items())))
                if trial not in rung.sent
                and (trial in rung.promoted or trial not in self.abandoned_trials)
            ]
            safe = ranking[: max(0, next_rung.quota - rung.expected)]
            promotions = sorted(trial for trial in safe if trial not in rung.promoted)
            rung.promoted += promotions
            next_rung.waiting += promotions
            arrived = next_rung.dropped + len(next_rung.waiting) + len(next_rung.scores)
            next_rung.grow(max(0, arrived - next_rung.size))
            if rung.expected == 0:  # trials that failed leave places empty
                next_rung.dropped += (
                    next_rung.size
                    - next_rung.dropped
                    - len(next_rung.waiting)
                    - len(next_rung.scores)
                )
            group += [Entry(trial, self.levels[k + 1]) for trial in promotions]
        return tuple(group)
