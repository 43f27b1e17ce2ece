"""The protocol of strategies, which decide how long each configuration is trained.

A strategy is a small state machine without clock or randomness. It is *pulled* when slots are idle.
It answers with a TrialGroup to run now, or with the number of new configurations to ask the sampler
for. It is told of every trial that reaches its target. Larger scores are better. Ties are broken in
favour of the earlier trial, so equal inputs give equal decisions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from ..model.study import StrategySpec
from ..model.trial_group import Entry, Fork, Pull, TrialGroup

#: The target of a trial that runs until its objective returns.
UNBOUNDED = 10**9
#: Early-stopping rules (``scheduler.strategies.stopping``).
RULES = ("median", "curve")
STRATEGIES = ("full", "halving", "asha", "pasha", "hyperband", "freeze_thaw", "pbt", *RULES)


class Strategy(Protocol):
    """Interface of a strategy. Its fields are its whole state, and can be written as JSON."""

    def pull(self, free: int, ahead: int, early: int | None = None) -> Pull:
        """Return the work for ``free`` idle slots.

        ``ahead`` is the number of configurations that may be asked for at once. ``early`` is the
        number of trials that may be trained further although later results may show others to be
        better, or None if it is unlimited.
        """

    def proposed(self, trials: tuple[str, ...], *, exhausted: bool) -> TrialGroup:
        """Take the sampler's answer to an ask, and return the group that enters these trials."""

    def reached(
        self, trial: str, epoch: int, curve: Mapping[int, float]
    ) -> tuple[Entry | Fork, ...]:
        """Note that a trial reached its target; return the promotions and forks due at once.

        ``curve`` has the trial's scores by epoch, in order, up to this one. The strategy is not
        told when a forked trial is entered; this call is the first that names the trial. Nor is it
        told when users send trials on, so any trial may reach any rung, where it counts as an
        additional trial.
        """

    def abandoned(self, trial: str) -> TrialGroup:
        """Stop waiting for a trial that failed, returned early, or that its user stopped or paused.

        The trial is not promoted, but may reach a target all the same. The result is as in
        ``reached``.
        """


def rungs(min_epochs: int, max_epochs: int, eta: int) -> tuple[int, ...]:
    """Return the epochs at which trials are compared.

    These are ``min_epochs * eta**k`` below ``max_epochs``, then ``max_epochs``.

    >>> rungs(1, 9, 3)
    (1, 3, 9)
    >>> rungs(2, 9, 3)
    (2, 6, 9)
    """
    levels = []
    level = min_epochs
    while level < max_epochs:
        levels.append(level)
        level *= eta
    return (*levels, max_epochs)


def best_first(scores: dict[str, float]) -> list[str]:
    """Return trials by falling score. Equal scores are in the order in which they arrived."""
    return sorted(scores, key=scores.__getitem__, reverse=True)


def rungs_of(plan: StrategySpec) -> tuple[int, ...]:
    """Return the rungs at which trials wait for each other under ``plan``; empty if none.

    Under freeze-thaw these are the rungs of its floor.
    """
    if plan.name in ("full", "pbt", *RULES) or plan.max_epochs is None:
        return ()
    return rungs(plan.min_epochs, plan.max_epochs, plan.eta)


def pauses_of(plan: StrategySpec) -> Sequence[int]:
    """Return the epochs at which a trial may be paused until others have results."""
    return comparison_epochs(plan) if plan.name == "freeze_thaw" else rungs_of(plan)


def comparison_epochs(plan: StrategySpec) -> Sequence[int]:
    """Return the epochs at which ``plan`` compares a trial's results: rungs or interval ends."""
    if plan.name == "freeze_thaw" and plan.max_epochs is not None:
        return range(1, plan.max_epochs + 1)
    if plan.name in ("pbt", *RULES) and plan.max_epochs is not None:
        return (*range(plan.min_epochs, plan.max_epochs, plan.min_epochs), plan.max_epochs)
    return rungs_of(plan)


def is_decided_at(plan: StrategySpec, epoch: int) -> bool:
    """Return True if ``plan`` is told when a trial reaches this epoch as its target."""
    last = plan.max_epochs or UNBOUNDED
    return epoch == last or (epoch < last and epoch in comparison_epochs(plan))


def staged(plan: StrategySpec) -> bool:
    """Return True if later work depends on results: targets are ends of rungs or intervals."""
    return plan.name == "pbt" or bool(rungs_of(plan))
