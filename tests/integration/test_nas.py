"""Models with choices in epoch functions and objectives, on real workers."""

from __future__ import annotations

import pytest
from nas_code import Net, objective, parameters_of, train
from penstock import FullBudget, Sampler, create_study, nas

pytestmark = pytest.mark.integration

#: The smallest net: 3 x 2 + 2, and 2 x 2 + 2.
SMALLEST = {"width": 2, "op": "linear"}


def test_an_epoch_function_builds_what_each_trial_chose_and_a_grid_has_each_once(site):
    study = create_study(
        study_name="nas-epochs", direction="minimize", metric="size", sampler="grid",
        strategy=FullBudget(1),
    )  # fmt: skip
    study.optimize(train, nas.space(Net, outputs=2), show_progress=False)
    assert len(study.trials) == nas.size(nas.space(Net)) == 2 * (2 + 1)
    assert [trial.value for trial in study.trials] == [
        parameters_of(trial.params) for trial in study.trials
    ]
    assert study.best_params == SMALLEST
    assert study.best_value == 14


def test_evolution_changes_choices_and_the_conditions_hold(site):
    study = create_study(
        study_name="nas-evolved", direction="minimize", metric="size", seed=1,
        strategy=FullBudget(1),
        sampler=Sampler("evolution", population_size=4, sample_size=2),
    )  # fmt: skip
    study.optimize(train, nas.space(Net, outputs=2), n_trials=12, show_progress=False)
    assert [trial.value for trial in study.trials] == [
        parameters_of(trial.params) for trial in study.trials
    ]
    assert all(("deep" in trial.params) == (trial.params["op"] == "mlp") for trial in study.trials)


def test_an_objective_builds_what_optuna_suggests(site):
    study = create_study(study_name="nas-objective", direction="minimize")
    study.optimize(objective, n_trials=3, show_progress=False)
    assert [trial.value for trial in study.trials] == [
        parameters_of(trial.params) for trial in study.trials
    ]
