"""CMA-ES goes on from its optimizers in attributes; what else is in their place is not opened."""

from __future__ import annotations

import pickle
from pathlib import Path

import optuna
import pytest
from optuna.samplers import CmaEsSampler, _cmaes
from penstock.base.errors import UsageError
from penstock.tasks.objectives import optimizers
from penstock.tasks.objectives.sampling import HostedStudy

optuna.logging.set_verbosity(optuna.logging.ERROR)
pytestmark = pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")

KINDS = ({}, {"use_separable_cma": True}, {"with_margin": True}, {"lr_adapt": True})


@pytest.fixture
def guarded(monkeypatch):
    """Optuna's module, which has its own ``pickle`` again afterwards."""
    monkeypatch.setattr(_cmaes, "pickle", _cmaes.pickle)
    return _cmaes


def loss(trial):
    return trial.suggest_float("x", -1, 1) ** 2 + trial.suggest_int("n", 1, 9)


def tried(options):
    study = optuna.create_study(
        sampler=CmaEsSampler(seed=1, n_startup_trials=1, popsize=4, **options)
    )
    study.optimize(loss, n_trials=14)
    opened = [key for trial in study.trials for key in trial.system_attrs if "optimizer" in key]
    return [trial.params for trial in study.trials], opened


@pytest.mark.parametrize("options", KINDS, ids=str)
def test_optimizers_of_each_kind_are_opened_and_draw_the_same(guarded, options):
    plain, kept = tried(options)
    assert kept, "it has kept some, which it opens again"
    optimizers.guard()
    assert tried(options)[0] == plain


class Touches:
    def __init__(self, file: Path):
        self.file = file

    def __reduce__(self):
        return Path.touch, (self.file,)


@pytest.mark.parametrize("prefix", ["cma", "sepcma"])
def test_what_a_strangers_trial_has_in_its_place_is_not_opened(guarded, tmp_path, prefix):
    file = tmp_path / "opened"
    sampler = CmaEsSampler(n_startup_trials=1, popsize=4, use_separable_cma=prefix == "sepcma")
    HostedStudy("mine", ["minimize"], sampler)  # where users' samplers run it is on
    study = optuna.create_study(sampler=sampler)
    ranges = {name: optuna.distributions.FloatDistribution(0, 1) for name in "xy"}
    study.add_trials(
        optuna.trial.create_trial(
            params={"x": 0.5, "y": 0.5},
            distributions=ranges,
            value=value,
            system_attrs={f"{prefix}:optimizer:0": pickle.dumps(Touches(file)).hex()},
        )
        for value in (0.0, 1.0)
    )
    with pytest.raises(UsageError, match=r"names pathlib\."):
        study.ask(ranges)
    assert not file.exists()
