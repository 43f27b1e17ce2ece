"""Make Optuna's sampler objects for studies whose sampler runs in the objective's process."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from typing import Any

from optuna import samplers
from optuna.exceptions import ExperimentalWarning
from optuna.samplers import BaseSampler

_CLASSES: dict[str, Callable[..., BaseSampler]] = {
    "random": samplers.RandomSampler,
    "tpe": samplers.TPESampler,
    "qmc": samplers.QMCSampler,
    "gp": samplers.GPSampler,
    "cmaes": samplers.CmaEsSampler,
    "nsga2": samplers.NSGAIISampler,
}


def make_sampler(name: str, options: str, seed: int) -> BaseSampler:
    """Return the Optuna sampler with this name (see ``spec.sampler_options.SAMPLERS``).

    ``options`` are the arguments of its class, as JSON text.
    """
    arguments: dict[str, Any] = json.loads(options)
    if name == "qmc":
        arguments |= {"scramble": True, "warn_independent_sampling": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        return _CLASSES[name](seed=seed, **arguments)
