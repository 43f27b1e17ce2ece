"""Optuna's CMA-ES, with an optimiser that is rebuilt from the trials for every ask.

Optuna stores the pickled optimiser with a trial and unpickles it from the database. The pickle
contains uninitialised memory, so two runs of the same study would not write the same events. An
optimiser knows only the results that it was told, generation by generation. So here a new optimiser
is told all results again, which takes a fraction of a millisecond for each generation. Only the
number of its generation is stored with a trial.
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
    """Optuna's ``CmaEsSampler`` with an optimiser that is rebuilt from the trials for every ask."""

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Draw values for the numeric parameters jointly."""
        self._of = (study.direction, search_space)
        return super().sample_relative(study, trial, search_space)

    def _restore_optimizer(self, completed_trials: list[FrozenTrial]) -> Any:
        direction, space = self._of
        transform = _SearchSpaceTransform(
            space, transform_step=not self._with_margin, transform_0_1=True
        )
        sign = 1.0 if direction is StudyDirection.MINIMIZE else -1.0
        optimizer = self._init_optimizer(transform, direction)
        generations = defaultdict[int, list[FrozenTrial]](list)
        for trial in completed_trials:
            generations[trial.system_attrs.get(self._attr_key_generation, -1)].append(trial)
        while True:
            generation = generations[optimizer.generation][: optimizer.population_size]
            if len(generation) < optimizer.population_size:
                return optimizer
            optimizer.tell(
                [
                    (
                        np.array(each.system_attrs["x_for_tell"])
                        if self._with_margin
                        else transform.transform(each.params),
                        sign * float(each.value or 0.0),
                    )
                    for each in generation
                ]
            )
