"""Expected number of epochs of a study under its strategy."""

from __future__ import annotations

from collections.abc import Sequence

from ..model.study import StrategySpec
from .base import rungs_of
from .freeze_thaw import SHARE
from .hyperband import brackets


def expected_epochs(plan: StrategySpec, n_trials: int) -> int | None:
    """Return the number of epochs that a study trains in all if none of its trials fails.

    Return None if the study has no ``max_epochs``, so that each objective decides when to return.
    The number is an upper bound for early-stopping rules. PASHA may train more epochs if its
    rankings disagree, and freeze-thaw if scores jump late.

    >>> from penstock.scheduler.model.study import StrategySpec
    >>> expected_epochs(StrategySpec("asha", max_epochs=9, eta=3), 27)
    63
    """
    if plan.max_epochs is None:
        return None
    levels = rungs_of(plan)
    if not levels:  # a stopping rule may leave out an unknown number
        return n_trials * plan.max_epochs
    if plan.name == "pasha":  # two rungs, and one trial to the end; more where rankings disagree
        return _halving(levels[:2], n_trials, plan.eta) + levels[-1] - levels[:2][-1]
    if plan.name == "freeze_thaw":  # what its model trains, the floor may have for free
        return min(n_trials * plan.max_epochs, SHARE * _halving(levels, n_trials, plan.eta))
    if plan.name == "hyperband":
        return sum(
            _halving(levels[-1 - s :], size, plan.eta)
            for s, size in brackets(len(levels), plan.eta, n_trials, proportional=plan.proportional)
        )
    return _halving(levels, n_trials, plan.eta, least=least_promoted(plan))


def least_promoted(plan: StrategySpec) -> int:
    """Return the least number of trials promoted from a rung, however few trials reached the rung.

    The number is 0 for ASHA, which promotes no trial from a rung with fewer than ``eta`` trials.
    It is 1 for the other strategies.
    """
    return 0 if plan.name == "asha" else 1


def _halving(levels: Sequence[int], n_trials: int, eta: int, least: int = 1) -> int:
    """Return the number of epochs that successive halving of ``n_trials`` trials trains in all.

    ``levels`` holds the epochs of the rungs. At least ``least`` trials go on from each rung.
    """
    total, below, size = 0, 0, n_trials
    for level in levels:
        total += size * (level - below)
        below, size = level, max(least, size // eta)
    return total
