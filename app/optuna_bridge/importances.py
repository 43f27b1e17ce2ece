"""How much of the result each hyperparameter explains, among trials of equal training.

Optuna's functional ANOVA (F. Hutter, H. Hoos, K. Leyton-Brown, ICML 2014): the share of the
variance over the space that each parameter accounts for alone, by a random forest through the
results. It is asked about one rung: values of different training say how long a trial ran. Optuna's
other way, PED-ANOVA, takes a hundredth of the time, and with 20 or 30 trials is often wrong.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...scheduler.strategies.base import looks_of

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

    from ...scheduler.model.study import StrategySpec

#: Below so many trials a share is mostly chance.
LEAST = 20
#: At most so many trials are looked at, spread evenly over the study, and so many trees are grown:
#: half a second for five parameters. All trials of a study of 1,000 would take 13 s.
MOST, TREES = 200, 16


@dataclass(frozen=True, slots=True)
class Importances:
    """Each parameter's share, 0 to 1, largest first; they sum to 1.

    They are of the values after ``epoch`` (0: of the last ones) of ``trials`` trials.
    """

    shares: dict[str, float]
    epoch: int
    trials: int


def importances(trials: Sequence[FrozenTrial], plan: StrategySpec) -> Importances | None:
    """Those at the highest rung of ``plan`` that enough trials have reached.

    Of several objectives the first one's. None where no rung has ``LEAST`` trials, or where nothing
    varies. The same trials give the same shares.
    """
    trials = [trial for trial in trials if trial.state.name != "FAIL"]
    for epoch in sorted(looks_of(plan), reverse=True) or [0]:
        found = [(trial, value) for trial in trials if (value := _value(trial, epoch)) is not None]
        if len(found) >= LEAST:
            some = found[:: math.ceil(len(found) / MOST)]
            shares = _shares(some)
            return None if shares is None else Importances(shares, epoch, len(some))
    return None


def _value(trial: FrozenTrial, epoch: int) -> float | None:
    """What the trial had after ``epoch``; where that is 0, what it completed with."""
    complete = trial.values[0] if trial.state.name == "COMPLETE" and trial.values else None
    value = trial.intermediate_values.get(epoch) if epoch else complete
    return value if value is not None and math.isfinite(value) else None


def _shares(found: Sequence[tuple[FrozenTrial, float]]) -> dict[str, float] | None:
    # Here, because it takes seconds: Optuna, and scikit-learn with its importances.
    import optuna
    from optuna.importance import FanovaImportanceEvaluator, get_param_importances

    from .study_view import OneStudy

    if len({value for _, value in found}) == 1:
        return None
    ended = [
        optuna.trial.create_trial(
            params={name: trial.params[name] for name in trial.distributions},
            distributions=trial.distributions,
            value=value,
        )
        for trial, value in found
    ]
    # It has one direction; which one is nothing to a variance.
    storage = OneStudy(ended, [optuna.study.StudyDirection.MINIMIZE])
    study = optuna.Study("shares", storage, sampler=optuna.samplers.RandomSampler(seed=0))
    evaluator = FanovaImportanceEvaluator(n_trees=TREES, seed=0)
    shares = get_param_importances(study, evaluator=evaluator)
    return {name: float(share) for name, share in shares.items()} or None
