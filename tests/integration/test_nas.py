"""Models with choices in epoch functions and objectives, on real workers."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from itertools import product

import pytest
import torch
from penstock import (
    ASHA,
    CurveStopping,
    Float,
    FullBudget,
    MedianStopping,
    Sampler,
    create_study,
    nas,
)
from penstock.app.host import locks
from penstock.app.ledger.codec import spec_from_json
from penstock.app.server.optuna_bridge.samplers import SamplerHost
from penstock.app.spec.conditions import parse_conditions
from penstock.app.spec.space import check_params, parse_space
from penstock.extensions.nas.events import Derived, Described
from user_code.nas_code import (
    Chain,
    Fitted,
    Mutated,
    Net,
    Unfixed,
    activation,
    behind,
    bounded,
    objective,
    parameters_of,
    train,
)

pytestmark = [pytest.mark.integration, pytest.mark.extension("nas")]

SAMPLERS = {
    "random": "random",
    "grid": "grid",
    "tpe": Sampler("tpe", n_startup_trials=4),
    "evolution": Sampler("evolution", population_size=4, sample_size=2),
}
STRATEGIES = {
    "full": FullBudget(3),
    "asha": ASHA(max_epochs=9),
    "median": MedianStopping(6),
    "curve": CurveStopping(6),
}
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
    words = f"so it was not trained: parameters is {sizes[large]}, allowed is at most 25"
    assert words in story


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


def test_each_strategy_of_exploration_goes_on_after_its_scheduler_was_killed(site):
    """Every sampler with full training and with early stopping, all at work when it is killed."""
    space = nas.space(Net) | {"lr": Float(0.01, 0.1, step=0.03)}
    studies = {}
    for sampler, strategy in product(SAMPLERS, STRATEGIES):
        study = create_study(
            study_name=f"nas-{sampler}-{strategy}", metric="loss", seed=1, fuse="off",
            sampler=SAMPLERS[sampler], strategy=STRATEGIES[strategy],
        )  # fmt: skip
        study.submit(Unfixed, space, n_trials=12)
        studies[sampler, strategy] = study.id

    def numbers():
        return [len(site.reader.trials(study)) for study in studies.values()]

    for least in (2, 8):
        site.until(lambda least=least: min(numbers()) >= least, f"each has {least} trials")
        pid = locks.pid_of(site.settings.run, "scheduler")
        os.kill(pid, signal.SIGKILL)
        site.until(lambda pid=pid: locks.pid_of(site.settings.run, "scheduler") not in {None, pid})
    for (sampler, strategy), study in studies.items():
        assert site.wait(study).status == "complete", (sampler, strategy)
        trials, epochs = site.reader.trials(study), site.reader.epochs(study)
        assert len(trials) == 12
        counted = Counter(row.trial for row in epochs)
        for trial in trials:
            assert trial.state in {"completed", "stopped"}
            assert counted[trial.id] == trial.epoch > 0
            whole = check_params(parse_space(space), trial.params, parse_conditions(space))
            assert whole == tuple(trial.params.items())
        assert max(trial.epoch for trial in trials) == STRATEGIES[strategy].max_epochs
        proposed = [tuple(trial.params.items()) for trial in trials]
        if sampler == "grid":
            assert len(set(proposed)) == 12
        if sampler in {"random", "grid"}:
            spec = spec_from_json(site.reader.study(study).spec_json)
            assert tuple(proposed) == SamplerHost().ask(spec, 0, 12, []).trials


def test_a_trainer_says_what_models_with_choices_are(site):
    study = create_study(
        study_name="nas-described", metric="loss", sampler="grid", strategy=FullBudget(1)
    )
    study.optimize(Unfixed, nas.space(Net), show_progress=False)
    found = {}
    for trial in study.trials:
        events = site.reader.events(trial.user_attrs["trial_id"])
        found |= {event.of: event for _, event in events if isinstance(event, Described)}
    assert found, "the first trial's is counted whatever it takes"
    for trial in study.trials:
        if event := found.get(trial.user_attrs["trial_id"]):
            net = nas.build(Net, trial.params)
            assert event.architecture.parameters == nas.parameters(net)
            assert event.architecture.flops == nas.flops(net, torch.zeros(1, 3))
            assert event.choices == tuple(sorted(trial.params))
    stories = "".join(site.penstock("story", f"{study.id}/{n}") for n in range(6))
    assert "operators deep" in stories


@pytest.mark.extension("report")
def test_the_ledger_has_what_mutators_did_and_the_story_tells_equal_architectures(site, tmp_path):
    mutators = [activation, behind]
    study = create_study(
        study_name="nas-derived", metric="loss", sampler="grid", strategy=ASHA(max_epochs=3)
    )
    study.optimize(Mutated, nas.space(Chain, mutators=mutators), show_progress=False)
    derived = {}
    for trial in study.trials:
        net = nas.build(Chain, trial.params, mutators=mutators)
        events = [event for _, event in site.reader.events(trial.user_attrs["trial_id"])]
        [event] = [event for event in events if isinstance(event, Derived)]
        body = {"base": event.base, "log": json.loads(event.log), "digest": event.digest}
        assert body == net.derivation.as_json()
        assert nas.replay(Chain(), nas.Derivation.from_json(body)).derivation == net.derivation
        derived[trial.number] = event.digest
    assert len(derived) == 6
    assert len(set(derived.values())) == 3
    [other] = [n for n, digest in derived.items() if n and digest == derived[0]]
    story = site.penstock("story", f"{study.id}/0")
    assert f"its architecture is that of trial {other}" in story
    assert f"architecture {derived[0][:12]}, made of" in story
    assert "behind: insert second(" in story
    page = tmp_path / "report.html"
    site.penstock("report", study.id, "-o", page)
    gallery = page.read_text().partition('<section id="architectures">')[2]
    assert "The best 3 of 3 different ones, of 6 trials" in gallery
    assert "by activation" in gallery
    assert "by behind" in gallery
