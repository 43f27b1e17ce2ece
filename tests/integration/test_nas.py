"""Models with choices in epoch functions and objectives, on real workers."""

from __future__ import annotations

import pytest
from nas_code import Fitted, Net, bounded, objective, parameters_of, train
from penstock import ASHA, FullBudget, Sampler, create_study, nas

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


@pytest.mark.parametrize("strategy", [FullBudget(3), ASHA(max_epochs=3)])
def test_a_model_over_a_bound_is_infeasible_before_its_first_epoch(site, strategy):
    space = nas.space(Net)
    study = create_study(
        study_name=f"nas-bounds-{strategy.name}", metric="loss", sampler="grid",
        strategy=strategy, constraints={"parameters": 25, "flops": 1000, "latency_ms": 1e6},
    )  # fmt: skip
    study.optimize(Fitted, space, show_progress=False)
    sizes = [
        sum(each.numel() for each in nas.build(Net, trial.params).parameters())
        for trial in study.trials
    ]
    assert len(sizes) == nas.size(space) == 6
    over = [size > 25 for size in sizes]
    assert [not trial.intermediate_values for trial in study.trials] == over
    assert sum(over) == 2
    assert {trial.state.name for trial, large in zip(study.trials, over, strict=True) if large} == {
        "PRUNED"
    }
    for trial, size in zip(study.trials, sizes, strict=True):
        assert trial.user_attrs["constraints"]["parameters"] == size - 25
        assert trial.user_attrs["constraints"]["flops"] < 0
    assert max(len(trial.intermediate_values) for trial in study.trials) == 3
    large = over.index(True)
    story = site.penstock("story", f"{study.id}/{large}")
    assert f"infeasible, and was not trained: parameters is {sizes[large]}, at most 25" in story


def test_an_epoch_function_says_what_it_knows_before_its_loop(site):
    study = create_study(
        study_name="nas-bounded", metric="epochs", sampler="grid", strategy=FullBudget(2),
        constraints={"size": 20},
    )  # fmt: skip
    study.optimize(bounded, nas.space(Net, outputs=2), show_progress=False)
    sizes = [parameters_of(trial.params) for trial in study.trials]
    assert 0 < sum(size > 20 for size in sizes) < len(sizes)
    assert [len(trial.intermediate_values) for trial in study.trials] == [
        0 if n > 20 else 2 for n in sizes
    ]
    assert [trial.user_attrs["constraints"]["size"] for trial in study.trials] == [
        n - 20 for n in sizes
    ]
