"""Optuna's CMA-ES with an optimiser that is made from the trials, anew for every ask.

Optuna's keeps the optimiser itself, pickled, with a trial: with uninitialised memory in it, so two
runs of one study would not write the same events, and unpickled from a database. All that it knows
it was told by the generations before, so it is told them again: a fraction of a millisecond each.
What is kept with a trial is its generation.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import optuna
from optuna._transform import _SearchSpaceTransform
from optuna.distributions import BaseDistribution
from optuna.samplers import CmaEsSampler
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial


class ReplayedCmaEs(CmaEsSampler):
    """As ``CmaEsSampler``, of which it replaces how an optimiser is found."""

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Numbers drawn together."""
        self._of = (study.direction, search_space)
        return super().sample_relative(study, trial, search_space)

    def _restore_optimizer(self, completed_trials: list[FrozenTrial]) -> Any:
        direction, space = self._of
        given = _SearchSpaceTransform(
            space, transform_step=not self._with_margin, transform_0_1=True
        )
        sign = 1.0 if direction is StudyDirection.MINIMIZE else -1.0
        optimizer = self._init_optimizer(given, direction)
        generations = defaultdict[int, list[FrozenTrial]](list)
        for trial in completed_trials:
            generations[trial.system_attrs.get(self._attr_key_generation, -1)].append(trial)
        while True:
            told = generations[optimizer.generation][: optimizer.population_size]
            if len(told) < optimizer.population_size:
                return optimizer
            optimizer.tell(
                [
                    (
                        np.array(each.system_attrs["x_for_tell"])
                        if self._with_margin
                        else given.transform(each.params),
                        sign * float(each.value or 0.0),
                    )
                    for each in told
                ]
            )
