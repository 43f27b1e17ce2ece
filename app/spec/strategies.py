"""Strategies for users. A strategy decides for how many epochs each configuration is trained.

Each function checks its arguments and returns the ``StrategySpec`` that is part of the study. All
functions raise UsageError for an argument that is not allowed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from ...base.errors import UsageError
from ...scheduler.model.study import StrategySpec
from ..common.validation import ABOVE_0, finite, flag, whole


def FullBudget(epochs: int | None = None) -> StrategySpec:  # noqa: N802 - reads as the value it is
    """Train every configuration for ``epochs``.

    If ``epochs`` is None, a configuration is trained until the objective returns.
    """
    if epochs is not None:
        epochs = whole("FullBudget.epochs", epochs, low=1)
    return StrategySpec("full", max_epochs=epochs)


def SuccessiveHalving(  # noqa: N802 - as above
    *, max_epochs: int, min_epochs: int = 1, eta: int = 3
) -> StrategySpec:
    """Train all trials for ``min_epochs``, then the best ``1/eta`` for ``eta`` times as long, etc.

    A rung is an epoch at which trials are compared. The strategy is synchronous: trials go on only
    when all trials of their rung have reached it. So the same seed gives the same result.
    """
    return _halving("halving", "SuccessiveHalving", min_epochs, max_epochs, eta)


def ASHA(  # noqa: N802 - as above
    *, max_epochs: int, min_epochs: int = 1, eta: int = 3
) -> StrategySpec:
    """Promote a trial to the next rung as soon as the trial is among the best ``1/eta`` so far.

    The rungs (epochs at which trials are compared) are those of ``SuccessiveHalving``. A trial that
    is not promoted is paused. The trial goes on later if it is among the best by then. The first
    trial of a high rung does not wait for other trials as long as the first trial is the best of
    all and still improves much.
    """
    return replace(_halving("asha", "ASHA", min_epochs, max_epochs, eta), ahead=True)


def PASHA(  # noqa: N802 - as above
    *, max_epochs: int, min_epochs: int = 1, eta: int = 3
) -> StrategySpec:
    """Promote trials by the rule of ``ASHA``, but open high rungs only while the ranking changes.

    A rung is an epoch at which trials are compared. High rungs are those above the second. At the
    end the best trial is trained to ``max_epochs``.
    """
    return _halving("pasha", "PASHA", min_epochs, max_epochs, eta)


def FreezeThaw(*, max_epochs: int) -> StrategySpec:  # noqa: N802 - as above
    """Decide after every epoch which trial to train for another epoch, or begin a new trial.

    The strategy trains the trial that promises most for the time that its epoch takes. A model of
    learning curves predicts each trial's value at ``max_epochs``. Trials are paused after an epoch,
    and go on from there. At most ``n_trials`` trials are begun.

    A third of the time goes to the trials that ``ASHA`` would train next. So the study never lags
    far behind ASHA, however wrong the model is. On one device, everything that ASHA trains in some
    time is trained within three times that time and one epoch. A tenth goes to the trials that were
    proposed first, whatever their scores are, in case the best trials begin badly. In return, the
    study takes more epochs than ASHA, up to four times as many if scores jump late. Until curves
    can be predicted, the strategy acts exactly as ASHA.
    """
    high = whole("FreezeThaw.max_epochs", max_epochs, low=1)
    return StrategySpec("freeze_thaw", high)


def Hyperband(  # noqa: N802 - as above
    *, max_epochs: int, min_epochs: int = 1, eta: int = 3, overlap: bool = True
) -> StrategySpec:
    """Run several successive halvings in turn, each with fewer configurations at its start.

    These halvings are called brackets. All brackets together make a round, which is repeated until
    the study has all its trials. If the trials are too few for a round, they are spread over all
    brackets in proportion. With ``eta`` 3 and rungs at 1, 3 and 9 epochs, a round takes 17 trials.
    With rungs up to 81 epochs a round takes 143 trials.

    With ``overlap`` the next bracket begins as soon as a slot is idle. Otherwise the next bracket
    begins when the bracket before it is over. With ``sampler="bohb"`` these two forms are BOHB and
    synchronous BOHB.
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
    """Use population based training: replace trials that fall behind with copies of better trials.

    ``n_trials`` is the size of the population. After every ``interval`` epochs, a trial in the
    bottom ``quantile`` (above 0, at most 0.5) is stopped, and a new trial replaces it. The new
    trial continues from the state of a trial in the top ``quantile``. Each parameter of the new
    trial is either the top trial's value times 0.8 or 1.2, or, with probability ``resample``, a
    newly drawn value. ``explore`` contains the names of the parameters that are changed. None means
    all parameters.
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

    The median is taken over the other trials' averages up to the same epoch. The rule is applied
    every ``every`` epochs.
    """
    return _rule("median", "MedianStopping", max_epochs, every)


def CurveStopping(  # noqa: N802 - as above
    max_epochs: int, *, every: int = 1, risk: float = 0.05
) -> StrategySpec:
    """Train all configurations fully, but stop a trial that is unlikely to become the best.

    Every ``every`` epochs, a power law is fitted to the trial's values. The fit gives the
    probability that the trial ends better than the best fully trained trial. The trial is stopped
    if this probability is less than ``risk`` (above 0, below 1).
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
