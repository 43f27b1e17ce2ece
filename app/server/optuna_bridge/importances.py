"""Compute how much of the result each hyperparameter explains, among equally trained trials.

The method is Optuna's functional ANOVA (F. Hutter, H. Hoos, K. Leyton-Brown, ICML 2014): a random
forest is fitted to the results, and each parameter gets the share of the variance over the space
that it explains alone. Only values at one rung are used, because values after different training
mostly show how long a trial ran. Optuna's alternative, PED-ANOVA, takes a hundredth of the time,
but with 20 or 30 trials it is often wrong.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ....scheduler.strategies.base import comparison_epochs

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

    from ....scheduler.model.study import StrategySpec

#: The smallest number of trials for which shares are computed. With fewer trials a share is mostly
#: chance.
LEAST = 20
#: The largest number of trials used, spread evenly over the study, and the number of trees. With
#: these limits five parameters take half a second. All trials of a study of 1,000 would take 13 s.
MOST, TREES = 200, 16


@dataclass(frozen=True, slots=True)
class Importances:
    """The share of each parameter, from 0 to 1, largest first. The shares sum to 1.

    The shares are computed from the values of ``trials`` trials after ``epoch``. If ``epoch`` is 0,
    the final values of complete trials were used.
    """

    shares: dict[str, float]
    epoch: int
    trials: int


def importances(trials: Sequence[FrozenTrial], plan: StrategySpec) -> Importances | None:
    """Return the importances at the highest rung of ``plan`` that enough trials have reached.

    If the study has several objectives, the first is used. Returns None if no rung has ``LEAST``
    trials or if all values are equal. The same trials always give the same shares.
    """
    trials = [trial for trial in trials if trial.state.name != "FAIL"]
    for epoch in sorted(comparison_epochs(plan), reverse=True) or [0]:
        valued = [(trial, value) for trial in trials if (value := _value(trial, epoch)) is not None]
        if len(valued) >= LEAST:
            some = valued[:: math.ceil(len(valued) / MOST)]
            shares = _shares(some)
            return None if shares is None else Importances(shares, epoch, len(some))
    return None


def _value(trial: FrozenTrial, epoch: int) -> float | None:
    """Return the trial's value after ``epoch``, or its final value if ``epoch`` is 0.

    Returns None if there is no such value or if it is not finite.
    """
    complete = trial.values[0] if trial.state.name == "COMPLETE" and trial.values else None
    value = trial.intermediate_values.get(epoch) if epoch else complete
    return value if value is not None and math.isfinite(value) else None


def _covering(trials: Sequence[FrozenTrial]) -> dict[str, Any]:
    """Return, for each parameter, a range that contains the ranges of all trials.

    Optuna leaves out parameters whose ranges differ between trials.
    """
    ranges = dict[str, Any]()
    for trial in trials:
        each: Any
        for name, each in trial.distributions.items():
            before = ranges.setdefault(name, each)
            if before != each and hasattr(each, "low"):
                low, high = min(before.low, each.low), max(before.high, each.high)
                ranges[name] = type(each)(low, high, log=each.log and low > 0)
    return ranges


def _shares(found: Sequence[tuple[FrozenTrial, float]]) -> dict[str, float] | None:
    # Imported here because it takes seconds: Optuna's importances import scikit-learn.
    import optuna
    from optuna.importance import FanovaImportanceEvaluator, get_param_importances

    from ....tasks.objectives.read_side import GivenStudy, ReadSide

    if len({value for _, value in found}) == 1:
        return None
    ranges = _covering([trial for trial, _ in found])
    frozen = [
        optuna.trial.create_trial(
            params={name: trial.params[name] for name in trial.distributions},
            distributions={name: ranges[name] for name in trial.distributions},
            value=value,
        )
        for trial, value in found
    ]
    # Optuna needs a direction, but a variance does not depend on it.
    stored = GivenStudy(("shares",), [optuna.study.StudyDirection.MINIMIZE], frozen)
    study = optuna.Study(
        "shares", ReadSide(lambda: {0: stored}), sampler=optuna.samplers.RandomSampler(seed=0)
    )
    evaluator = FanovaImportanceEvaluator(n_trees=TREES, seed=0)
    shares = get_param_importances(study, evaluator=evaluator)
    return {name: float(share) for name, share in shares.items()} or None
