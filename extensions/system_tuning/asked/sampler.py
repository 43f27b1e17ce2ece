"""Proposes system configurations to try, with Optuna's TPE over the space of knobs.

The same question always has the same answer, since both the model and its random seed depend on the
question alone. A knob has only a few values, so all parameters of the space are categorical.
"""

from __future__ import annotations

import hashlib
import warnings

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.exceptions import ExperimentalWarning
from optuna.samplers import TPESampler
from optuna.trial import TrialState, create_trial

from ....profiling.knobs.knobs import SystemConfig
from .decisions import AskConfigs

#: The most configurations in one answer. This number of configurations race at a time.
TOGETHER = 4
#: Number of draws for each configuration, because TPE may propose the same one again.
DRAWS = 8


def propose(ask: AskConfigs) -> tuple[SystemConfig, ...]:
    """Return up to ``TOGETHER`` untried configurations; none if TPE proposes nothing new.

    TPE minimises the mean log ratio of a configuration's seconds per step to the default's. The
    default itself has the ratio 0. A configuration that cannot be run counts as a failed trial.
    """
    space: dict[str, BaseDistribution] = {
        name: CategoricalDistribution((None, *values)) for name, values in ask.choices
    }
    seed = hashlib.sha256(f"{ask.workload}/{ask.index}".encode()).digest()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)  # group= of TPE
        sampler = TPESampler(
            n_startup_trials=TOGETHER,
            multivariate=True,
            constant_liar=True,
            seed=int.from_bytes(seed[:4], "big"),
        )
    model = optuna.create_study(sampler=sampler)
    for config, ratio in (((), 0.0), *ask.seen):
        config_values = dict(config)
        params = {name: config_values.get(name) for name in space}
        if ratio is None:
            model.add_trial(create_trial(state=TrialState.FAIL, params=params, distributions=space))
        else:
            model.add_trial(create_trial(value=ratio, params=params, distributions=space))
    tried_configs = {(), *(config for config, _ in ask.seen)}
    proposals: dict[SystemConfig, None] = {}
    for _ in range(TOGETHER * DRAWS):
        sampled = model.ask(space).params
        config = tuple(sorted((n, value) for n, value in sampled.items() if value is not None))
        if config not in tried_configs:
            proposals[config] = None
        if len(proposals) == TOGETHER:
            break
    return tuple(proposals)
