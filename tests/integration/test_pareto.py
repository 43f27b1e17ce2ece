"""Studies of several objectives on real workers, with constraints and conditional spaces."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import optuna
import pytest
from penstock import FullBudget, Sampler, TrialFailed, create_study

pytestmark = pytest.mark.integration

EXAMPLE = Path(__file__).parents[2] / "examples" / "pareto.py"


def trade_off(trial):
    x = trial.suggest_float("x", 0, 1)
    trial.set_constraint("not too large", x - 0.75)
    return x, (x - 1) ** 2


def returns_one(trial):
    return trial.suggest_float("x", 0, 1)


@pytest.fixture
def example(monkeypatch):
    spec = importlib.util.spec_from_file_location("pareto", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "pareto", module)
    spec.loader.exec_module(module)
    return module


def test_the_example_trades_accuracy_against_size(site, example):
    study = create_study(
        study_name="pareto",
        directions=["maximize", "minimize"],
        metric=["accuracy", "weights"],
        constraints={"weights": 20_000},
        strategy=FullBudget(2),
        sampler=Sampler("nsga2", population_size=4),
    )
    study.enqueue_trial({"hidden": 256, "layers": 2, "second": 128, "lr": 0.01})
    study.optimize(example.SmallNet, example.SPACE, n_trials=10, show_progress=False)
    trials = study.trials
    assert {trial.state.name for trial in trials} == {"COMPLETE"}
    assert trials[0].values[1] > 20_000, "the enqueued one is too large"
    best = study.best_trials
    assert 0 < len(best) < 10
    assert trials[0] not in best
    for trial in trials:
        assert ("second" in trial.params) == (trial.params["layers"] == 2)
        assert ("momentum" in trial.params) == (trial.params["optimizer"] == "sgd")
    copy = study.to_optuna()
    assert [trial.number for trial in copy.best_trials] == [trial.number for trial in best]
    with pytest.raises(RuntimeError, match="see best_trials"):
        _ = study.best_value
    with pytest.raises(
        TrialFailed, match="no metric 'weight'; those there are: accuracy"
    ) as failed:
        create_study(
            directions=["maximize", "minimize"], metric=["accuracy", "weights"],
            constraints={"weight": 1}, strategy=FullBudget(2), sampler="random",
        ).optimize(example.SmallNet, example.SPACE, n_trials=1, show_progress=False)  # fmt: skip
    assert failed.value.kind == "metric"
    assert f"Pareto front of {len(best)}" in site.penstock("best", "pareto")


def test_an_optuna_objective_returns_a_tuple_and_says_its_constraints(site):
    sampler = optuna.samplers.NSGAIISampler(population_size=4)
    study = create_study(directions=["minimize", "minimize"], sampler=sampler)
    for x in (
        0.1,
        0.9,
    ):  # twelve draws of which none is allowed, or all are, are rare, not impossible
        study.enqueue_trial({"x": x})
    study.optimize(trade_off, n_trials=12, show_progress=False)
    assert all(trial.values[0] == trial.params["x"] for trial in study.trials)
    allowed = [trial.number for trial in study.trials if trial.params["x"] <= 0.75]
    assert 0 < len(allowed) < 12
    assert [trial.number for trial in study.best_trials] == allowed, "each beats none of the others"
    assert list(study.trials_dataframe())[1:3] == ["values_0", "values_1"]
    with pytest.raises(TrialFailed, match="number of the values 1 did not match"):
        create_study(directions=["minimize"] * 2).optimize(
            returns_one, n_trials=1, show_progress=False
        )
