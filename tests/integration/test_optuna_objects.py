"""Scripts whose objectives leave objects in memory: what comes back, and what is said instead."""

from __future__ import annotations

import json

import optuna
import penstock
import pytest
from patience import PATIENCE

pytestmark = pytest.mark.integration

BEST_MODEL = """
import optuna

class Model:
    def __init__(self, x):
        self.x = x

    def score(self):
        return self.x * self.x

def objective(trial):
    model = Model(trial.suggest_float("x", -1, 1))
    trial.set_user_attr("model", model)
    assert trial.user_attrs["model"].x == model.x
    done = trial.study.get_trials(states=[optuna.trial.TrialState.COMPLETE])
    assert all(each.user_attrs["model"].x == each.params["x"] for each in done)
    return model.score()

def keep_best(study, trial):
    if study.best_trial.number == trial.number:
        study.set_user_attr("model", trial.user_attrs["model"])

study = optuna.create_study(study_name="models", sampler=optuna.samplers.RandomSampler(seed=1))
study.set_user_attr("before", Model(7))
study.optimize(objective, n_trials=6, callbacks=[keep_best])
best = study.best_trial.user_attrs["model"]
assert isinstance(best, Model)
assert best.score() == study.user_attrs["model"].score() == study.best_value
print("before", study.user_attrs["before"].x)
frame = study.trials_dataframe()
print("frame", frame["user_attrs_model"][0].x == study.trials[0].params["x"])
"""

GLOBAL_BEST = """
import functools
import optuna
import threading

class Model:
    def __init__(self, x):
        self.x = x

best_model, best_score, COUNT, scores = None, 1.0, 0, []

def objective(trial):
    global best_model, best_score, COUNT
    COUNT += 1
    model = Model(trial.suggest_float("x", -1, 1))
    score = model.x ** 2
    scores.append(score)
    if score < best_score:
        best_model, best_score = model, score
    return score

def in_a_function():
    found = None

    def objective(trial):
        nonlocal found
        x = trial.suggest_float("x", -1, 1)
        if found is None or x > found:
            found = x
        return x

    study = optuna.create_study(direction="maximize")
    study.optimize(objective, n_trials=5)
    assert found == study.best_value

class Objective:
    best = None

    def __call__(self, trial):
        x = trial.suggest_float("x", -1, 1)
        if self.best is None or x < self.best:
            self.best = x
        self.lock = threading.Lock()
        return x

class Undeclared:
    def __call__(self, trial):
        self.found = {"x": trial.suggest_float("x", -1, 1)}
        return self.found["x"] * factor(1)

@functools.lru_cache
def factor(k):
    return k

if __name__ == "__main__":
    study = optuna.create_study(study_name="global")
    study.optimize(objective, n_trials=6)
    assert isinstance(best_model, Model)
    assert best_model.x == study.best_params["x"]
    assert best_score == study.best_value
    study.optimize(objective, n_trials=6)
    assert best_score == best_model.x ** 2 == study.best_value
    in_a_function()
    instance = Objective()
    study = optuna.create_study()
    study.optimize(instance, n_trials=5)
    assert instance.best == study.best_value
    instance = Undeclared()
    study = optuna.create_study()
    study.optimize(instance, n_trials=5)
    assert instance.found == study.best_params
    print("all came back", len(study.trials))
    print(max(scores))
"""

LOGS = """
import logging
import os
import sys
import optuna

form = "%(name)s %(levelname)s %(message)s"
logging.basicConfig(filename="train.log", level=logging.INFO, format=form)
mine = logging.getLogger("mine")
mine.setLevel(logging.DEBUG)

def objective(trial):
    x = trial.suggest_float("x", 0, 1)
    for epoch in range(3):
        logging.info("trial %d epoch %d", trial.number, epoch)
        mine.debug("trial %d detail %d", trial.number, epoch)
        if trial.number == 1 and epoch == 2 and not os.path.exists("died"):
            open("died", "w").close()
            os.kill(os.getpid(), 9)
        trial.report(x, epoch)
    logging.warning("trial %d ends", trial.number)
    return x

study = optuna.create_study(study_name="logged")
study.optimize(objective, 4, callbacks=[lambda s, trial: logging.info("after %d", trial.number)])
"""


@pytest.fixture
def run(site, tmp_path):
    """Run a script; its exit code, and all that was printed."""

    def result(text, *arguments):
        (tmp_path / "s.py").write_text(text)
        process = site.start("run", "s.py", *arguments, cwd=tmp_path)
        out, err = process.communicate(timeout=PATIENCE)
        return process.returncode, out + err

    return result


@pytest.mark.extension("exports")
@pytest.mark.extension("report")
def test_models_that_are_attributes_come_back_in_the_script_and_are_texts_elsewhere(
    run, site, tmp_path
):
    code, said = run(BEST_MODEL)
    assert code == 0, said
    assert "before 7" in said
    assert "frame True" in said
    shown = penstock.load_study("models").best_trial.user_attrs["model"]
    assert shown.startswith("<Model, ")
    reader = optuna.load_study(study_name="models", storage=penstock.storage())
    assert json.dumps(reader.user_attrs["model"]) == f'"{reader.user_attrs["model"]}"'
    site.penstock("export", "models", "-o", tmp_path / "models.json")
    assert "<Model, " in site.penstock("export", "models", "--format", "csv")
    site.penstock("report", "models", "-o", tmp_path / "models.html")
    assert "&lt;Model, " in (tmp_path / "models.html").read_text()


@pytest.mark.extension("exports")
def test_an_export_that_names_objects_brings_none(run, site, tmp_path):
    assert run(BEST_MODEL.replace('"models"', '"first-one"'))[0] == 0
    file = tmp_path / "exported.json"
    site.penstock("export", "first-one", "-o", file)
    text = file.read_text().replace("first-one", "brought")
    (tmp_path / "brought.json").write_text(text)
    site.penstock("import", tmp_path / "brought.json")
    found = penstock.load_study("brought")
    assert found.best_trial.user_attrs["model"]["penstock.object"] == "Model"
    assert found.user_attrs["model"]["bytes"] > 0


def test_the_best_trials_globals_come_back_and_what_was_collected_is_said_to_be_elsewhere(run):
    code, said = run(GLOBAL_BEST)
    assert "all came back 5" in said, said
    lines = said.splitlines()
    told = [k for k, line in enumerate(lines) if line.startswith("scores is changed by the obj")]
    first = next(k for k, line in enumerate(lines) if line.startswith("trial 0 "))
    assert told[0] < first, "it is said before the first trial"
    assert code == 2
    assert lines[-1].startswith("penstock: scores is changed by the objective in trainers")
    assert '`trial.set_user_attr("score", score)` there' in lines[-1]
    assert lines[-1].endswith("(at s.py:73)")


def test_what_an_objective_logs_is_in_the_scripts_file_once_and_in_order(run, site, tmp_path):
    code, said = run(LOGS)
    assert code == 0, said
    assert (tmp_path / "died").exists()
    lines = (tmp_path / "train.log").read_text().splitlines()
    for number in range(4):
        own = [line for line in lines if f"trial {number} " in line or f"after {number}" in line]
        assert own == [
            *(
                text
                for epoch in range(3)
                for text in (
                    f"root INFO trial {number} epoch {epoch}",
                    f"mine DEBUG trial {number} detail {epoch}",
                )
            ),
            f"root WARNING trial {number} ends",
            f"root INFO after {number}",
        ]
    assert "trial 2 epoch 1" in site.penstock("logs", "logged/2")
    assert "penstock:log" not in str(penstock.load_study("logged").trials)
    assert "logged lines, which the script's handlers get" in site.penstock("story", "logged/0")
