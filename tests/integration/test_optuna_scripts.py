"""Optuna scripts by ``penstock run``: what a user found to go otherwise than by Optuna."""

from __future__ import annotations

import pytest
from patience import PATIENCE

pytestmark = pytest.mark.integration

ASKED_FIRST = """
import optuna

def objective(trial):
    return trial.suggest_float("x", 0, 1)

study = optuna.create_study(sampler=optuna.samplers.{sampler}(seed=1))
for _ in range(3):
    trial = study.ask()
    study.tell(trial, objective(trial))
study.optimize(objective, n_trials=4)
print(*(trial.state.name for trial in study.trials))
"""

CONTINUED = """
import sys
import optuna

def objective(trial):
    if len(sys.argv) > 1:
        raise RuntimeError("no such column")
    return trial.suggest_float("x", 0, 1)

study = optuna.create_study(study_name="c", storage="sqlite:///c.db", load_if_exists=True)
study.optimize(objective, n_trials=20 if len(sys.argv) > 1 else 2)
print("it ran on")
"""

CALLS_BACK = """
import optuna

def objective(trial):
    raise ValueError("bad data")

study = optuna.create_study()
study.optimize(objective, n_trials=9, callbacks=[lambda study, _: print(study.best_value)])
"""

MOVES = """
import os
from pathlib import Path
import optuna

os.chdir("elsewhere")

def objective(trial):
    assert Path(__file__).exists()
    return trial.suggest_float("x", 0, 1)

if __name__ == "__main__":
    assert Path(__file__).exists()
    optuna.create_study().optimize(objective, n_trials=2)
    optuna.create_study(direction="up")
"""

REFERS = """
import optuna

def objective(trial):
    best = study.best_value if study.trials else None
    return trial.suggest_float("x", 0, 1)

study = optuna.create_study()
with open(__file__) as held:  # cannot be pickled, so the objective goes by its name
    objective.held = held
    study.optimize(objective, n_trials=1)
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


@pytest.mark.parametrize("sampler", ["TPESampler", "GPSampler"])
def test_a_sampler_that_has_drawn_in_the_script_goes_on_in_trainers(run, sampler):
    code, said = run(ASKED_FIRST.format(sampler=sampler))
    assert code == 0
    assert " ".join(["COMPLETE"] * 7) in said


def test_a_bug_in_a_continued_study_is_said_early_and_raised(run):
    assert run(CONTINUED)[0] == 0
    code, said = run(CONTINUED, "bug")
    assert code == 1
    assert "trials failed alike, as all would: RuntimeError: no such column" in said
    assert "it ran on" not in said


def test_a_callback_does_not_hide_why_the_objective_failed(run):
    code, said = run(CALLS_BACK)
    assert code == 1
    assert "ValueError: bad data" in said.splitlines()[-1]
    assert 'raise ValueError("bad data")' in said, "the objective's traceback"


def test_a_script_knows_its_file_and_is_told_the_line_of_what_is_refused(run, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    code, said = run(MOVES)
    assert code == 2
    assert "2/2 trials" in said
    assert "direction = 'up' is refused" in said
    assert "(at s.py:15)" in said.splitlines()[-1]


def test_a_study_to_which_an_objective_refers_by_name_is_warned_of(run):
    code, said = run(REFERS)
    assert code == 0, said
    assert "objective refers to study. In trainers" in said
