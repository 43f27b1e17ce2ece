"""Objectives for studies whose sampler and pruner run in the objective's process."""

from __future__ import annotations

import json
import os
import sys
import time
import warnings
from pathlib import Path

import optuna
from optuna.artifacts import FileSystemArtifactStore, upload_artifact


def sphere(trial):
    """Numbers of three kinds, one in a branch of its own."""
    x = trial.suggest_float("x", -5, 5)
    n = trial.suggest_int("n", 1, 100, log=True)
    kind = trial.suggest_categorical("kind", ["plain", "shifted"])
    shift = trial.suggest_float("shift", 0, 1) if kind == "shifted" else 0.0
    return (x - shift) ** 2 + n / 100


def waits_between_samples(trial):
    x = trial.suggest_float("x", 0, 1)
    time.sleep(0.05)
    return x + trial.suggest_float("y", 0, 1)


def prunes(trial):
    for step in range(0, 20, 2):
        trial.report(float(step), step)
        if trial.should_prune():
            raise optuna.TrialPruned
    return 100.0


def annotates(trial):
    trial.set_user_attr("array", [1, 2.5])
    trial.set_user_attr("array", [3])
    trial.study.set_user_attr("owner", "nobody")
    assert trial.study.user_attrs["owner"] == "nobody"
    assert trial.user_attrs == {"array": [3]}
    return 1.0


def enqueues(trial):
    trial.study.enqueue_trial({"x": 0.25}, user_attrs={"why": "a guess"})
    trial.study.enqueue_trial({"x": 0.25}, skip_if_exists=True)
    trial.study.stop()
    return 1.0


def chooses_objects(trial):
    reader = trial.suggest_categorical("reader", [json.JSONDecoder])
    kind = trial.suggest_categorical("kind", [(1, "a"), json.JSONEncoder, None])
    assert reader is json.JSONDecoder
    assert any(kind is each for each in (json.JSONEncoder, None)) or kind == (1, "a")
    return float(trial.number)


def uploads(trial):
    """Uploads two artifacts to the folder that its script was given."""
    _, folder, text = sys.argv
    store = FileSystemArtifactStore(folder)
    for number in range(2):
        file = Path(folder) / f"{text}{number}.txt"
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"{text}{number}")
        upload_artifact(artifact_store=store, file_path=str(file), study_or_trial=trial)
    return 1.0


def reports_nan(trial):
    trial.report(float("nan"), 0)
    trial.report(float("-inf"), 3)
    return 2.0


def typical(trial):
    """All that a trial has. What it gives is kept where it can be compared."""
    x = trial.suggest_float("x", -5, 5)
    n = trial.suggest_int("n", 1, 100, log=True)
    kind = trial.suggest_categorical("kind", ["plain", "shifted"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the older names
        old = [
            trial.suggest_uniform("u", 0, 1),
            trial.suggest_loguniform("l", 0.1, 1),
            trial.suggest_discrete_uniform("d", 0, 1, 0.25),
        ]
    trial.set_user_attr("kind", kind)
    trial.set_constraint("n", n - 90)
    seen = {
        "number": trial.number,
        "params": trial.params,
        "distributions": sorted(trial.distributions),
        "relative_params": getattr(trial, "relative_params", {}),
        "constraints": trial.constraints,
        "user_attrs": dict(trial.user_attrs),
        "began": trial.datetime_start is not None,
    }
    trial.set_user_attr("seen", seen)
    for step in range(0, 6, 2):
        trial.report(x**2 + step, step)
        if trial.should_prune():
            raise optuna.TrialPruned
    return x**2 + n / 100 + sum(old)


def naps(trial):
    time.sleep(0.05)
    return float(trial.number)


def stops(trial):
    if trial.number == 2:
        trial.study.stop()
    return 1.0


def draws_in_the_middle(trial):
    """Reports six epochs; the second parameter is drawn before the fourth."""
    x, y = trial.suggest_float("x", 0, 1), 0.0
    trial.set_user_attr("x", x)
    for step in range(6):
        if step == 3:
            y = trial.suggest_float("y", 0, 1)
        trial.report(x + y, step)
    return x + y


def draws_again(trial):
    x, between = trial.suggest_float("x", 0, 1), optuna.distributions.FloatDistribution(0, 1)
    trial.storage.set_trial_param(trial._trial_id, "x", x, between)
    trial.storage.set_trial_param(trial._trial_id, "x", x / 2, between)
    return x


def holds(folder, trial):
    """Reports twice, and once more when ``folder`` has a file ``go``; the process is a note."""
    x = trial.suggest_float("x", 0, 1)
    trial.set_user_attr("pid", os.getpid())
    for step in range(2):
        trial.report(x + step, step)
    while not Path(folder, "go").exists():
        time.sleep(0.01)
    y = trial.suggest_float("y", 0, 1)
    trial.report(x + y + 2, 2)
    return x + y
