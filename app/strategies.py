"""Evaluation strategies as a user names them: how long each configuration is trained.

Each checks its numbers when made and gives the ``StrategySpec`` that travels with the study.
"""

from __future__ import annotations

from ..profiling.errors import UsageError
from ..scheduler.study import StrategySpec
from .space import whole


def FullBudget(epochs: int | None = None) -> StrategySpec:  # noqa: N802 - reads as the value it is
    """Train every configuration for ``epochs``; None: until the objective returns."""
    if epochs is not None:
        epochs = whole("FullBudget.epochs", epochs, low=1)
    return StrategySpec("full", max_epochs=epochs)


def SuccessiveHalving(  # noqa: N802 - as above
    *, max_epochs: int, min_epochs: int = 1, eta: int = 3
) -> StrategySpec:
    """Train all for ``min_epochs``, then the best ``1/eta`` for ``eta`` times as long, and so on.

    Synchronous: a rung starts when the one before it is complete, so one seed gives one result.
    """
    return _halving("halving", "SuccessiveHalving", min_epochs, max_epochs, eta)


def ASHA(  # noqa: N802 - as above
    *, max_epochs: int, min_epochs: int = 1, eta: int = 3
) -> StrategySpec:
    """As ``SuccessiveHalving``, but a trial is promoted as soon as it is among the best so far.

    Trials that are passed over are paused, and go on later if they are among the best then.
    """
    return _halving("asha", "ASHA", min_epochs, max_epochs, eta)


def _halving(name: str, shown: str, min_epochs: int, max_epochs: int, eta: int) -> StrategySpec:
    low = whole(f"{shown}.min_epochs", min_epochs, low=1)
    high = whole(f"{shown}.max_epochs", max_epochs, low=1)
    if low > high:
        raise UsageError.refuse(f"{shown}.min_epochs", low, f"at most max_epochs = {high}")
    return StrategySpec(name, high, low, whole(f"{shown}.eta", eta, low=2))
