"""Evaluation strategies for users, which decide how long each configuration is trained.

Each function checks its arguments and returns the ``StrategySpec`` that is part of the study.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from ...base.errors import UsageError
from ...scheduler.model.study import StrategySpec
from ..common.validation import ABOVE_0, finite, flag, whole


def FullBudget(epochs: int | None = None) -> StrategySpec:  # noqa: N802 - reads as the value it is
    """Train every configuration for ``epochs``, or until the objective returns if that is None."""
    if epochs is not None:
        epochs = whole("FullBudget.epochs", epochs, low=1)
    return StrategySpec("full", max_epochs=epochs)


def SuccessiveHalving(  # noqa: N802 - as above
    *, max_epochs: int, min_epochs: int = 1, eta: int = 3
) -> StrategySpec:
    """Train all for ``min_epochs``, then the best ``1/eta`` for ``eta`` times as long, and so on.

    It is synchronous: a rung starts when the rung before it is complete, so the same seed gives the
    same result.
    """
    return _halving("halving", "SuccessiveHalving", min_epochs, max_epochs, eta)


def ASHA(  # noqa: N802 - as above
    *, max_epochs: int, min_epochs: int = 1, eta: int = 3
) -> StrategySpec:
    """Like ``SuccessiveHalving``, but a trial is promoted as soon as it is among the best so far.

    Trials that are not promoted are paused, and go on later if they are among the best by then. The
    first trial of a high rung does not wait for other trials as long as it is the best of all and
    still improves much.
    """
    return replace(_halving("asha", "ASHA", min_epochs, max_epochs, eta), ahead=True)


def PASHA(  # noqa: N802 - as above
    *, max_epochs: int, min_epochs: int = 1, eta: int = 3
) -> StrategySpec:
    """Like ``ASHA``, but rungs above the second are opened only while the ranking still changes.

    At the end the best trial is trained to ``max_epochs``.
    """
    return _halving("pasha", "PASHA", min_epochs, max_epochs, eta)


def FreezeThaw(*, max_epochs: int) -> StrategySpec:  # noqa: N802 - as above
    """After every epoch, continue the most promising trial for its time, or begin a new one.

    A model of learning curves predicts each trial's value at ``max_epochs``. Trials are paused
    after an epoch, and go on from there. At most ``n_trials`` trials are begun.

    A third of the time goes to the trials that ``ASHA`` would train next. So, however wrong the
    model is, everything that ASHA trains in some time on one device is trained in three times that
    time and an epoch, and a study takes up to three times the epochs. It acts as ASHA until curves
    can be predicted.
    """
    high = whole("FreezeThaw.max_epochs", max_epochs, low=1)
    return StrategySpec("freeze_thaw", high)


def Hyperband(  # noqa: N802 - as above
    *, max_epochs: int, min_epochs: int = 1, eta: int = 3, overlap: bool = True
) -> StrategySpec:
    """Several successive halvings, one after another, each with fewer configurations at its start.

    These brackets make a round, which is repeated until the study has all its trials. If the trials
    are too few for a round, they are spread over all its brackets in proportion. With ``eta`` 3 and
    rungs at 1, 3 and 9 epochs a round takes 17 trials; with rungs up to 81 epochs it takes 143.

    With ``overlap`` the next bracket begins as soon as a slot is idle; otherwise it begins when the
    bracket before it is over. With ``sampler="bohb"`` these two forms are BOHB and synchronous
    BOHB.
    """
    spec = _halving("hyperband", "Hyperband", min_epochs, max_epochs, eta)
    return replace(spec, overlap=flag("Hyperband.overlap", overlap), proportional=True)


def PBT(  # noqa: N802 - as above
    *,
    max_epochs: int,
    interval: int = 1,
    quantile: float = 0.25,
    resample: float = 0.25,
    explore: Sequence[str] | None = None,
) -> StrategySpec:
    """Population based training: trials that fall behind are replaced by copies of better ones.

    ``n_trials`` is the size of the population. After each ``interval`` epochs a trial in the bottom
    ``quantile`` (above 0, at most 0.5) is stopped, and a new trial replaces it. The new trial
    continues from the state of a trial in the top ``quantile``. Each of its parameters is that
    trial's value times 0.8 or 1.2, or is resampled with probability ``resample``. ``explore`` names
    the parameters that are changed, or all if it is None.
    """
    low = whole("PBT.interval", interval, low=1)
    high = whole("PBT.max_epochs", max_epochs, low=1)
    if low > high:
        raise UsageError.refuse("PBT.interval", low, f"at most max_epochs = {high}")
    if isinstance(explore, str) or not all(isinstance(name, str) for name in explore or ()):
        raise UsageError.refuse("PBT.explore", explore, "a list of parameters' names, or None")
    return StrategySpec(
        "pbt",
        high,
        low,
        quantile=finite("PBT.quantile", quantile, "above 0 and at most 0.5", ABOVE_0, 0.5),
        resample=finite("PBT.resample", resample, "0 to 1", 0, 1),
        explore=None if explore is None else tuple(explore),
    )


def MedianStopping(max_epochs: int, *, every: int = 1) -> StrategySpec:  # noqa: N802 - as above
    """Train all configurations fully, but stop a trial whose best value is worse than a median.

    The median is that of the other trials' averages up to the same epoch. The rule is applied every
    ``every`` epochs.
    """
    return _rule("median", "MedianStopping", max_epochs, every)


def CurveStopping(  # noqa: N802 - as above
    max_epochs: int, *, every: int = 1, risk: float = 0.05
) -> StrategySpec:
    """Train all configurations fully, but stop a trial that is unlikely to be the best.

    A power law is fitted to the trial's values every ``every`` epochs. The trial stops when the
    fitted probability that it ends above the best fully trained trial is less than ``risk`` (above
    0, below 1).
    """
    below = math.nextafter(1.0, 0.0)
    checked_risk = finite("CurveStopping.risk", risk, "above 0 and below 1", ABOVE_0, below)
    return replace(_rule("curve", "CurveStopping", max_epochs, every), risk=checked_risk)


def _rule(name: str, shown: str, max_epochs: int, every: int) -> StrategySpec:
    high = whole(f"{shown}.max_epochs", max_epochs, low=1)
    return StrategySpec(name, high, whole(f"{shown}.every", every, low=1))


def _halving(name: str, shown: str, min_epochs: int, max_epochs: int, eta: int) -> StrategySpec:
    low = whole(f"{shown}.min_epochs", min_epochs, low=1)
    high = whole(f"{shown}.max_epochs", max_epochs, low=1)
    if low > high:
        raise UsageError.refuse(f"{shown}.min_epochs", low, f"at most max_epochs = {high}")
    return StrategySpec(name, high, low, whole(f"{shown}.eta", eta, low=2))
