"""Studies of ours paired with the same of plain Optuna, for the tests of Optuna's public API."""

from __future__ import annotations

from contextlib import closing, contextmanager
from types import SimpleNamespace

import optuna
import penstock
import pytest
from optuna.distributions import FloatDistribution
from penstock.app.client.study.optuna_scripts import on_devices
from servers.installation import Installation, variables_of
from user_code import local_objectives

MARKS = [
    pytest.mark.integration,
    # Optuna says of much that it is experimental, or will go.
    pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]
TRIALS = 14
X = FloatDistribution(0.0, 1.0)


@contextmanager
def one_slot(folder):
    """A running installation in ``folder``, and the environment of its user."""
    site = Installation(folder, devices="cpu:1x1")
    with closing(site), variables_of(site):
        yield site


def tools():
    sampler = optuna.samplers.TPESampler(seed=7, n_startup_trials=5)
    return {"sampler": sampler, "pruner": optuna.pruners.MedianPruner(n_startup_trials=4)}


def both_studies():
    """A study of one slot, made as a script that runs unchanged makes it; the same of Optuna."""
    said = []
    with on_devices(said.append):
        ours = optuna.create_study(study_name="api", **tools())
        ours.optimize(local_objectives.typical, n_trials=TRIALS, show_progress_bar=False)
    plain = optuna.create_study(study_name="api", **tools())
    plain.optimize(local_objectives.typical, n_trials=TRIALS)
    return SimpleNamespace(ours=ours, plain=plain, said=said)


def both_fronts():
    """Studies of two objectives, trained by hand."""
    studies = []
    for module in (penstock, optuna):
        sampler = optuna.samplers.RandomSampler(seed=2)
        study = module.create_study(
            study_name="front", directions=["minimize", "maximize"], sampler=sampler
        )
        for _ in range(6):
            trial = study.ask({"x": X, "y": X})
            study.tell(trial, [trial.params["x"], trial.params["y"]])
        studies.append(study)
    return SimpleNamespace(ours=studies[0], plain=studies[1])


def facts(trial):
    """All of a trial but its id and times."""
    names = ("number", "state", "values", "params", "distributions", "user_attrs", "constraints")
    more = ("system_attrs", "intermediate_values", "last_step")
    return {name: getattr(trial, name) for name in names + more}


def every(study):
    return [facts(trial) for trial in study.trials]
