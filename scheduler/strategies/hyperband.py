"""Hyperband (Li et al. 2018, "Hyperband: A Novel Bandit-Based Approach", Algorithm 1).

With K rungs, bracket s (from K - 1 down to 0) is a successive halving of ``ceil(K / (s + 1) *
eta**s)`` configurations over the last s + 1 rungs. The first bracket has many trials that begin
with little training; the last has few trials that are trained to the end. After bracket 0 comes
bracket K - 1 again, until there are as many trials as the study has.

If the trials that remain are too few for the rest of a round, each of its brackets gets its share
of them (``proportional``). The paper leaves this case open. Without ``proportional``, the next
bracket takes all that remain: 27 trials with R = 81 then form the most aggressive bracket alone,
and none of them is trained for 81 epochs unless it wins each of four rungs.

With ``overlap``, the next bracket begins as soon as a slot is idle (BOHB's rule for parallel
workers, Falkner et al. 2018, section 4.2). Without it, a bracket begins when the previous one is
over, as in a synchronous BOHB.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from ..model.trial_group import Pull, TrialGroup
from .halving import SuccessiveHalving


@dataclass(slots=True)
class Hyperband:
    """Hyperband's state machine."""

    #: Number of trials the study is to have.
    n_trials: int
    #: The reduction factor: one of ``eta`` trials at a rung is promoted.
    eta: int
    #: The epochs of all rungs, rising.
    levels: tuple[int, ...]
    #: True if a bracket may begin before the previous one is over.
    overlap: bool
    #: True if the last trials, too few for a whole round, are shared among all its brackets.
    proportional: bool = False
    #: Number of configurations that the sampler was asked for so far.
    asked: int = 0
    #: The brackets begun so far.
    brackets: list[SuccessiveHalving] = field(default_factory=list)
    #: The index in ``brackets`` of the bracket to which each trial belongs.
    homes: dict[str, int] = field(default_factory=dict)
    #: Number of brackets that have received their trials.
    answered: int = 0
    #: Distinguishes strategies in a snapshot.
    kind: Literal["hyperband"] = "hyperband"

    def pull(self, free: int, ahead: int, early: int | None = None) -> Pull:
        """Begin one more bracket if the rules allow, and ask for the bracket's configurations."""
        blocked = not self.overlap and any(not bracket.over for bracket in self.brackets)
        if blocked or self.asked >= self.n_trials:
            return Pull()
        remaining = self.n_trials - self.asked
        s, size = _bracket(
            len(self.brackets),
            len(self.levels),
            self.eta,
            remaining,
            proportional=self.proportional,
        )
        levels = self.levels[-1 - s :]
        self.brackets.append(SuccessiveHalving(size, self.eta, levels, asked=True))
        self.asked += size
        return Pull(ask=size)

    def proposed(self, trials: tuple[str, ...], *, exhausted: bool) -> TrialGroup:
        """Enter the new trials at the first rung of the oldest bracket that waits for its trials.

        Answers of the sampler arrive in the order in which the brackets asked.
        """
        if exhausted:
            self.asked = self.n_trials
        self.homes |= dict.fromkeys(trials, self.answered)
        bracket = self.brackets[self.answered]
        self.answered += 1
        return bracket.proposed(trials, exhausted=exhausted)

    def reached(self, trial: str, epoch: int, curve: Mapping[int, float]) -> TrialGroup:
        """Pass the result on to the trial's bracket, and return the bracket's promotions."""
        home = self._home(trial)
        return () if home is None else home.reached(trial, epoch, curve)

    def abandoned(self, trial: str) -> TrialGroup:
        """Tell the trial's bracket not to wait for the trial.

        Return the promotions that the bracket decides on now.
        """
        home = self._home(trial)
        return () if home is None else home.abandoned(trial)

    def _home(self, trial: str) -> SuccessiveHalving | None:
        """Return the bracket to which the trial belongs.

        Return None for a trial that was proposed before the study was reopened.
        """
        return self.brackets[self.homes[trial]] if trial in self.homes else None


def brackets(
    rungs: int, eta: int, n_trials: int, *, proportional: bool
) -> Iterator[tuple[int, int]]:
    """Yield (s, number of configurations) for each bracket, in the order in which brackets begin.

    The numbers of configurations add up to ``n_trials``.

    >>> list(brackets(5, 3, 200, proportional=True))
    [(4, 81), (3, 34), (2, 15), (1, 8), (0, 5), (4, 32), (3, 14), (2, 6), (1, 3), (0, 2)]
    >>> list(brackets(5, 3, 200, proportional=False))
    [(4, 81), (3, 34), (2, 15), (1, 8), (0, 5), (4, 57)]
    """
    at = 0
    while n_trials > 0:
        s, size = _bracket(at, rungs, eta, n_trials, proportional=proportional)
        yield s, size
        at += 1
        n_trials -= size


def _bracket(
    at: int, rungs: int, eta: int, remaining: int, *, proportional: bool
) -> tuple[int, int]:
    """Return s and the number of configurations of the bracket with index ``at``.

    ``remaining`` is the number of trials that the study has left for this and later brackets.
    """
    s = rungs - 1 - at % rungs
    sizes = [-(-rungs * eta**each // (each + 1)) for each in range(s + 1)]
    if proportional and remaining < sum(sizes):
        return s, max(1, round(remaining * sizes[s] / sum(sizes)))
    return s, min(remaining, sizes[s])
