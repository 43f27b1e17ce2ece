"""How long each configuration is trained: the evaluation strategy, a sequence of TrialGroups.

A strategy is a small state machine without clock or randomness. It is *pulled* when slots have
nothing to do, and answers with a TrialGroup to run now, or with how many new configurations to ask
the sampler for. It hears of every trial that reached the target it was given. Scores are larger is
better. Ties are broken by the earlier trial, so equal inputs give equal decisions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ..profiling.errors import UsageError
from .study import StudySpec

#: The target of a trial that runs until its objective returns.
UNBOUNDED = 10**9


@dataclass(frozen=True, slots=True)
class Entry:
    """One member of a TrialGroup: train ``trial`` until it has reached ``epochs`` (absolute)."""

    trial: str
    epochs: int


TrialGroup = tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Pull:
    """A strategy's answer: entries to run now, and configurations to ask for."""

    group: TrialGroup = ()
    ask: int = 0


class Strategy(Protocol):
    """What the engine needs of a strategy. Its fields are JSON-able: they are its whole state."""

    def pull(self, free: int, ahead: int) -> Pull:
        """``free`` slots have nothing to do; ``ahead`` configurations may be asked for at once."""

    def proposed(self, trials: tuple[str, ...], *, exhausted: bool) -> TrialGroup:
        """The sampler answered an ask; the group enters these trials."""

    def reached(self, trial: str, epoch: int, score: float) -> TrialGroup:
        """A trial reached its target with this score; the group holds promotions due at once."""

    def left(self, trial: str) -> TrialGroup:
        """A trial failed or returned early and will reach no target; as ``reached``."""


def rungs(min_epochs: int, max_epochs: int, eta: int) -> tuple[int, ...]:
    """Epochs at which trials are compared: ``min_epochs * eta**k`` below ``max_epochs``, then it.

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
    """Trials by falling score; equal scores in the order in which they arrived."""
    return sorted(scores, key=lambda trial: -scores[trial])


def make_strategy(spec: StudySpec) -> Strategy:
    """The strategy that a study names, fresh. Raises UsageError for an unknown name."""
    from .asha import Asha
    from .full import FullBudget
    from .halving import SuccessiveHalving

    plan = spec.strategy
    if plan.name == "full":
        return FullBudget(n_trials=spec.n_trials, max_epochs=plan.max_epochs or UNBOUNDED)
    if plan.name not in ("halving", "asha"):
        raise UsageError.refuse("strategy", plan.name, ", ".join(STRATEGIES))
    if plan.max_epochs is None:
        raise UsageError.refuse("max_epochs", None, f"a whole number >= 1 with {plan.name}")
    levels = rungs(plan.min_epochs, plan.max_epochs, plan.eta)
    maker = SuccessiveHalving if plan.name == "halving" else Asha
    return maker(n_trials=spec.n_trials, eta=plan.eta, levels=levels)


STRATEGIES = ("full", "halving", "asha")
