"""The examples' training code on real workers, at reduced size."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import pytest
from penstock import ASHA, Float, FullBudget, Sampler, create_study
from servers.installation import Installation, variables_of

pytestmark = pytest.mark.integration

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def example(monkeypatch):
    """Imports an example as a module, as its user's own program would."""

    def load(name):
        spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, module)
        spec.loader.exec_module(module)
        return module

    return load


def test_digits(site, example):
    study = create_study(
        study_name="digits", direction="maximize", metric="accuracy",
        strategy=ASHA(max_epochs=3, eta=3),
    )  # fmt: skip
    space = {"lr": Float(1e-3, 1e-2, log=True), "hidden": [32, 64], "dropout": [0.1]}
    study.optimize(example("digits").DigitsNet, space, 6, show_progress=False)
    best = study.best_trial
    assert best.value > 0.8
    assert best.user_attrs["metrics"]["test_accuracy"] > 0.8
    assert len(best.intermediate_values) == 3


@pytest.mark.extension("nas")
def test_architectures_and_learning_rate_are_searched_together(site, example):
    study = create_study(
        study_name="nas", direction="maximize", metric="accuracy",
        strategy=ASHA(max_epochs=3, eta=3), seed=0,
    )  # fmt: skip
    module = example("nas_digits")
    study.optimize(module.Digits, module.space(), 6, show_progress=False)
    assert study.best_value > 0.5
    best = study.best_params
    assert {"width", "depth", "op0", "lr"} <= set(best)
    assert all((f"kernel{i}" in best) == (best.get(f"op{i}") == "mobile") for i in range(3))


@pytest.mark.extension("nas")
def test_cells_are_proposed_by_evolution(site, example):
    from penstock import nas

    study = create_study(
        study_name="cell", direction="maximize", metric="accuracy", strategy=FullBudget(1),
        sampler=Sampler("evolution", population_size=2, sample_size=1), seed=0,
    )  # fmt: skip
    module = example("nas_cell")
    space = nas.space(module.Net)
    study.optimize(module.Digits, space, 2, show_progress=False)
    study.extend(by=1)  # its parent has a result: it was not drawn ahead
    site.wait(study.id)
    assert [set(trial.params) for trial in study.trials] == [set(space)] * 3
    one, other, child = (trial.params for trial in study.trials)
    assert any(sum(child[name] != parent[name] for name in space) == 1 for parent in (one, other))


def test_the_optuna_objective_is_paused_and_promoted_unchanged(site, example):
    study = create_study(
        study_name="optuna", direction="maximize", strategy=ASHA(max_epochs=9, eta=3)
    )
    study.optimize(example("optuna_objective").objective, n_trials=4, show_progress=False)
    assert study.best_value > 0.8
    lengths = sorted(len(trial.intermediate_values) for trial in study.trials)
    assert lengths[0] < 9
    assert set(study.best_params) == {"alpha", "loss", "average"}


def test_the_epoch_function_is_paused_and_promoted(site, example):
    study = create_study(
        study_name="epochs", direction="maximize", metric="accuracy",
        strategy=ASHA(max_epochs=3, eta=3),
    )  # fmt: skip
    space = {"alpha": Float(1e-6, 1e-3, log=True), "loss": ["hinge", "log_loss"]}
    study.optimize(example("epoch_function").train, space, 4, show_progress=False)
    assert study.best_value > 0.8
    lengths = sorted(len(trial.intermediate_values) for trial in study.trials)
    assert (lengths[0], lengths[-1]) == (1, 3)


def test_lenet_on_a_part_of_mnist(tmp_path, example):
    data = os.environ.get("PENSTOCK_DATA")
    if data is None or not (Path(data) / "mnist" / "train-images-idx3-ubyte.gz").exists():
        pytest.skip("MNIST is not here: set PENSTOCK_DATA to a folder with mnist/*-ubyte.gz")
    site = Installation(tmp_path / "home")
    try:
        with variables_of(site):
            study = create_study(
                study_name="mnist", direction="maximize", metric="accuracy", sampler="grid",
                strategy=FullBudget(1),
            )  # fmt: skip
            space = {"lr": [0.05], "momentum": [0.9], "batch_size": [32], "examples": [3000]}
            study.optimize(example("mnist_lenet").LeNet, space, show_progress=False)
            assert study.best_value > 0.7
    finally:
        site.close()
