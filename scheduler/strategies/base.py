"""The protocol of strategies, which decide how long each configuration is trained.

A strategy is a small state machine without a clock or randomness. The engine calls ``pull`` when
slots are idle. The strategy answers with the trials to run now, and with the number of new
configurations to ask the sampler for. The engine calls ``reached`` for every trial that reaches the
epoch up to which the strategy wanted the trial trained (the trial's *target*). Larger scores are
better. If two scores are equal, the trial whose score arrived first ranks higher, so equal inputs
give equal decisions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from ..model.study import StrategySpec
from ..model.trial_group import Entry, Fork, Pull, TrialGroup

#: The target of a trial that runs until its objective returns.
UNBOUNDED = 10**9
#: The names of the early-stopping rules (``scheduler.strategies.stopping``).
RULES = ("median", "curve")
STRATEGIES = ("full", "halving", "asha", "pasha", "hyperband", "freeze_thaw", "pbt", *RULES)


class Strategy(Protocol):
    """Interface of a strategy.

    The fields of a strategy hold its whole state, and all of them can be written as JSON.
    """

    def pull(self, free: int, ahead: int, early: int | None = None) -> Pull:
        """Return the work for ``free`` idle slots.

        ``ahead`` is the number of configurations that the strategy may ask for at once, even if
        fewer slots are idle. Some trials are trained further before it is certain that they are
        good enough, since later results may show other trials to be better. ``early`` is the
        largest number of such trials in the answer, or None for no limit.
        """

    def proposed(self, trials: tuple[str, ...], *, exhausted: bool) -> TrialGroup:
        """Take the new trials that the sampler proposed, and return each with its first target.

        ``exhausted`` is True if the sampler has no further configurations.
        """

    def reached(
        self, trial: str, epoch: int, curve: Mapping[int, float]
    ) -> tuple[Entry | Fork, ...]:
        """Note that a trial reached its target, and return the promotions and forks due at once.

        ``curve`` maps each epoch up to ``epoch`` to the trial's score, in order of epochs. For a
        forked trial (a trial that continues from another trial's state), this call is the first
        that names the trial. A user may train a paused trial further without a decision of the
        strategy. So any trial may reach any rung, where the trial counts as an additional one.
        """

    def abandoned(self, trial: str) -> TrialGroup:
        """Stop waiting for a trial that failed, returned early, or that its user stopped or paused.

        The strategy does not promote the trial, but the trial may still reach a target later.
        Return the promotions that are due at once because the strategy no longer waits.
        """


def rungs(min_epochs: int, max_epochs: int, eta: int) -> tuple[int, ...]:
    """Return the epochs at which trials are compared.

    The epochs are all ``min_epochs * eta**k`` (k = 0, 1, ...) below ``max_epochs``, followed by
    ``max_epochs``.

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
    """Return the trials, best score first. Equal scores stay in the order of ``scores``."""
    return sorted(scores, key=scores.__getitem__, reverse=True)


def rungs_of(plan: StrategySpec) -> tuple[int, ...]:
    """Return the epochs of the rungs at which trials wait for each other under ``plan``.

    The result is empty if the strategy has no rungs. Freeze-thaw compares trials after every epoch,
    but spends part of the device time as ASHA would; for freeze-thaw, return the rungs of that
    ASHA.
    """
    if plan.name in ("full", "pbt", *RULES) or plan.max_epochs is None:
        return ()
    return rungs(plan.min_epochs, plan.max_epochs, plan.eta)


def pauses_of(plan: StrategySpec) -> Sequence[int]:
    """Return the epochs at which a trial may be paused until others have results."""
    return comparison_epochs(plan) if plan.name == "freeze_thaw" else rungs_of(plan)


def comparison_epochs(plan: StrategySpec) -> Sequence[int]:
    """Return the epochs at which the strategy of ``plan`` compares a trial with other trials.

    The epochs are the strategy's rungs or the ends of its intervals. For freeze-thaw, return every
    epoch.
    """
    if plan.name == "freeze_thaw" and plan.max_epochs is not None:
        return range(1, plan.max_epochs + 1)
    if plan.name in ("pbt", *RULES) and plan.max_epochs is not None:
        return (*range(plan.min_epochs, plan.max_epochs, plan.min_epochs), plan.max_epochs)
    return rungs_of(plan)


def is_decided_at(plan: StrategySpec, epoch: int) -> bool:
    """Return True if the strategy of ``plan`` makes a decision about a trial at ``epoch``.

    This is so at the last epoch, and at each epoch of ``comparison_epochs``.
    """
    last = plan.max_epochs or UNBOUNDED
    return epoch == last or (epoch < last and epoch in comparison_epochs(plan))


def staged(plan: StrategySpec) -> bool:
    """Return True if results decide which trials are trained further.

    Return False for early-stopping rules: a rule can only leave out work that was planned.
    """
    return plan.name == "pbt" or bool(rungs_of(plan))
