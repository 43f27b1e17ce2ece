"""Synchronous successive halving (Jamieson & Talwalkar 2016; Li et al. 2018, Algorithm 1).

Rung k is for ``n_k = floor(n / eta**k)`` trials trained to ``levels[k]`` epochs. When all trials of
a rung have reached its epoch or failed, the best ``n_{k+1}`` trials go on. At least one trial goes
on from each rung, so that some trial is trained to the last epoch. Equal scores are ordered by
trial number, so one seed has one result on any number of devices.

Theory of operation. Early promotion: a trial that will be among the best ``n_{k+1}``, whatever the
rest of its rung scores, goes on at once. The i-th best of the trials that have arrived (from 0) is
certain when i plus the number of trials still to come is below ``n_{k+1}``. So the same trials
reach the same rungs as without early promotion, but slots are idle for less time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from ..model.trial_group import Entry, Pull, TrialGroup
from .base import best_first


@dataclass(slots=True)
class Rung:
    """A rung, that is, an epoch at which ``size`` trials are compared.

    ``waiting`` holds the trials that are being trained to the rung. ``scores`` has a score for each
    trial that has arrived. ``promoted`` holds the trials that went on to a higher rung, and
    ``sent`` holds the promoted trials that a user sent on without the rule. ``dropped`` counts the
    trials that were meant for the rung but will never arrive. ``extra`` counts the trials in
    ``size`` that the rung got in addition to its quota.
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
        """Number of trials that the halving rule promotes to the rung."""
        return self.size - self.extra

    def grow(self, by: int) -> None:
        """Raise the size of the rung by ``by`` trials, and leave its quota as it is."""
        self.size += by
        self.extra += by


@dataclass(slots=True)
class SuccessiveHalving:
    """The state machine of one successive halving."""

    #: Number of configurations in the first rung.
    n_trials: int
    #: The reduction factor: one of ``eta`` trials at a rung is promoted.
    eta: int
    #: The epochs of the rungs, rising.
    levels: tuple[int, ...]
    #: True once the sampler was asked for the configurations.
    asked: bool = False
    #: Trials that were abandoned while paused at a rung. Other trials are promoted instead.
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
        """Ask for all configurations in the first call, and for nothing later.

        Promotions are returned by ``reached`` and ``abandoned``.
        """
        if self.asked:
            return Pull()
        self.asked = True
        return Pull(ask=self.n_trials)

    def proposed(self, trials: tuple[str, ...], *, exhausted: bool) -> TrialGroup:
        """Set up the rungs, and train every new trial to the first rung."""
        size = len(trials)
        for _ in self.levels:
            self.rungs.append(Rung(size))
            size = max(1, size // self.eta) if trials else 0
        self.rungs[0].waiting = list(trials)
        return tuple(Entry(trial, self.levels[0]) for trial in trials)

    def reached(self, trial: str, epoch: int, curve: Mapping[int, float]) -> TrialGroup:
        """Note the score of ``trial``, and promote the trials that are certain now.

        A rung that did not wait for ``trial`` counts ``trial`` in addition to its quota. So the
        number of other trials that are promoted stays the same.
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
        """Make room at rung ``level`` for a trial for which the rung does not wait.

        Either the rung had given up the trial, or a user sent the trial on without the rule.
        """
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
        """Stop waiting for the trial, and promote the trials that are certain now."""
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
