"""Studies of epoch functions on real workers: every strategy, and trainers killed on the way."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest
from penstock import (
    ASHA,
    PASHA,
    CurveStopping,
    FreezeThaw,
    FullBudget,
    Hyperband,
    MedianStopping,
    SuccessiveHalving,
    TrialFailed,
    create_study,
)
from penstock.app.show.stories.story import find_trial, trial_story
from user_code import epoch_functions as functions

pytestmark = pytest.mark.integration

STRATEGIES = [
    FullBudget(3),
    SuccessiveHalving(max_epochs=4, eta=2),
    ASHA(max_epochs=4, eta=2),
    PASHA(max_epochs=4, eta=2),
    Hyperband(max_epochs=4, eta=2),
    FreezeThaw(max_epochs=4),
    MedianStopping(4),
    CurveStopping(4),
]


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda strategy: strategy.name)
def test_a_function_is_paused_and_promoted_under_every_strategy(site, strategy):
    study = create_study(
        direction="maximize", metric="accuracy", sampler="random", strategy=strategy
    )
    study.optimize(functions.keeps_nothing, {"x": [1, 2, 3]}, n_trials=5, show_progress=False)
    assert study.status == "complete"
    lengths = [len(trial.intermediate_values) for trial in study.trials]
    assert max(lengths) == strategy.max_epochs
    for trial, length in zip(study.trials, lengths, strict=True):
        # The sums that one undisturbed loop comes to, whatever the pauses.
        sums = {epoch: epoch * (epoch + 1) / 2 for epoch in range(1, length + 1)}
        assert trial.intermediate_values == sums


def test_the_story_of_a_trial_says_what_was_expected_of_it(site):
    study = create_study(
        direction="maximize",
        metric="accuracy",
        sampler="random",
        strategy=FreezeThaw(max_epochs=6),
    )
    study.optimize(functions.keeps_nothing, {"x": [1, 2, 3]}, n_trials=12, show_progress=False)
    assert study.status == "complete"
    longest = max(study.trials, key=lambda trial: len(trial.intermediate_values))
    row, trial = find_trial(site.reader, f"{study.id}-{longest.number:04d}")
    told = "\n".join(line.length for line in trial_story(site.reader, row, trial).lines)
    said = r"expected [\d.]+ ± [\d.]+ at epoch 6; (best|number \d+) of \d+$"
    assert re.search(said, told, re.MULTILINE), told


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sklearn", "torch"])
def test_with_its_trainers_killed_a_study_goes_on_from_its_checkpoints(site, kind):
    study = create_study(
        study_name=f"killed {kind}",
        direction="maximize",
        metric="accuracy",
        sampler="grid",
        strategy=SuccessiveHalving(max_epochs=8, min_epochs=2, eta=2),
    )
    space = {"kind": [kind], "lr": [0.0001, 0.001, 0.01, 0.03]}
    study.submit(functions.digits, space)
    site.until(
        lambda: max([row.epoch for row in site.reader.epochs(study.id)], default=0) >= 3,
        "a trial is beyond the first rung",
    )
    for process in site.trainers():
        process.kill()
    accepted = {(row.trial[-4:], row.epoch) for row in site.reader.epochs(study.id)}
    told = len(site.log("trainer"))
    assert site.wait(study.id).status == "complete"

    rows = [(row.trial[-4:], row.epoch) for row in site.reader.epochs(study.id)]
    assert len(rows) == len(set(rows)) == 4 * 2 + 2 * 2 + 4
    assert study.best_value > 0.8
    log = site.log("trainer")
    # A worker may add to a trainer's log while it is read; what is asked does not depend on it.
    assert len(log) > told
    began = re.findall(rf"{kind} trial (\d+) goes on after epoch (\d+)", log)
    assert began, "somebody was taken up from a checkpoint"
    for trial, epoch in began:
        assert (f"{int(trial):04}", int(epoch)) in accepted | set(rows)
    trained = re.findall(rf"{kind} trial (\d+) trains epoch (\d+)", log)
    # Only what was lost on the way is trained twice: nothing that was accepted before the kill.
    for trial, epoch in accepted:
        assert trained.count((str(int(trial)), str(epoch))) == 1


@pytest.mark.extension("adapters")
@pytest.mark.slow
def test_an_estimator_goes_on_where_its_trainers_were_killed(site, monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "examples")
    study = create_study(
        direction="maximize", metric="accuracy", sampler="grid", strategy=FullBudget(20)
    )
    code = importlib.import_module("sklearn_partial_fit").train
    study.submit(code, {"lr": [0.001, 0.01], "alpha": [1e-4], "hidden": [64]})
    site.until(
        lambda: max([row.epoch for row in site.reader.epochs(study.id)], default=0) >= 3,
        "a trial is in its middle",
    )
    for process in site.trainers():
        process.kill()
    assert site.wait(study.id).status == "complete"
    rows = [(row.trial, row.epoch) for row in site.reader.epochs(study.id)]
    assert len(rows) == len(set(rows)) == 2 * 20
    assert study.best_value > 0.9
    stories = [site.penstock("story", trial) for trial in {trial for trial, _ in rows}]
    assert any("died" in story for story in stories)
    assert not any("computed again" in story for story in stories), "it never began anew"


def test_when_the_studys_metric_is_never_reported_the_user_is_told_what_was(site):
    study = create_study(metric="accuracy", sampler="grid", strategy=FullBudget(2))
    with pytest.raises(TrialFailed, match="no metric 'accuracy'; those there are: f1") as failed:
        study.optimize(functions.reports_another_metric, {"x": [1, 2]}, show_progress=False)
    assert failed.value.kind == "metric"


def test_a_function_that_breaks_off_is_complete_with_its_last_value(site):
    study = create_study(
        direction="maximize", metric="accuracy", sampler="grid", strategy=FullBudget(3)
    )
    study.optimize(functions.stops_early, {"stop": [1, 2, 9]}, show_progress=False)
    ends = {trial.params["stop"]: trial for trial in study.trials}
    assert {stop: trial.value for stop, trial in ends.items()} == {1: 1.0, 2: 2.0, 9: 3.0}
    assert {trial.state.name for trial in study.trials} == {"COMPLETE"}
    assert len(ends[2].intermediate_values) == 2
