"""A script's code, command line and working directory reach the trainers as they are."""

from __future__ import annotations

import json
import os

import pytest
from penstock import create_study

pytestmark = pytest.mark.integration

SCRIPT = """
import argparse, json, os, sys
from pathlib import Path
import penstock

parser = argparse.ArgumentParser()
parser.add_argument("--scale", type=float)

def objective(trial):
    import __main__
    x = trial.suggest_float("x", 0.0, 1.0)
    Path("seen.json").write_text(json.dumps([sys.argv, __main__.scale]))
    return scale * x

if __name__ == "__main__":
    scale = parser.parse_args(sys.argv[1:3]).scale
    study = penstock.create_study(study_name=sys.argv[3], load_if_exists=True)
    study.optimize(objective, n_trials=int(sys.argv[4]), show_progress=False)
    print(study.best_value)
"""


def test_a_script_finds_its_arguments_and_its_folder_and_goes_on_with_new_bytes(site, tmp_path):
    script = tmp_path / "scaled.py"
    script.write_text(SCRIPT)

    def run(scale, n_trials):
        arguments = ["scaled.py", "--scale", scale, "as in a script", n_trials]
        out = site.finish(site.python(*arguments, cwd=tmp_path))
        return arguments, json.loads((tmp_path / "seen.json").read_text()), float(out)

    arguments, seen, best = run("100", "1")
    assert (seen, best >= 0) == ([arguments, 100.0], True)
    arguments, seen, best = run("-7", "2")
    assert (seen, best <= 0) == ([arguments, -7.0], True), "it is extended with what is sent now"
    assert site.reader.study("as in a script").status == "complete"
    spec = json.loads(site.reader.study("as in a script").spec_json)
    assert spec["code"]["target"] == "pickle:scaled:objective"


def test_a_working_directory_that_a_node_lacks_is_said_and_the_study_runs(
    site, tmp_path, monkeypatch
):
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    study = create_study(study_name="homeless")
    left = tmp_path / "left.txt"

    def objective(trial):
        x = trial.suggest_float("x", 0.0, 1.0)
        left.write_text(str(x))
        if trial.number == 1:
            raise ValueError("no file")
        return x

    # Between the look at the folder and its submission nothing starts: it is gone by then.
    monkeypatch.setattr(study._handle, "ensure_up", lambda devices: folder.rmdir())
    study.optimize(objective, n_trials=2, show_progress=False)
    assert left.exists()
    assert [trial.state.name for trial in study.trials] == ["COMPLETE", "FAIL"]
    said = f"its working directory {folder} is not on this node"
    stories = [site.penstock("story", f"homeless/{n}", cwd=tmp_path) for n in (0, 1)]
    assert any(f"runs, but {said}" in story for story in stories)
    assert f"relative paths are looked up in {site.settings.home}" in stories[1]
    assert "ValueError: no file (its working directory" in stories[1]
    assert said in site.log("trainer")


def test_variables_that_a_script_sets_are_its_own_and_those_that_its_objective_sets_count(
    site, monkeypatch
):
    """docs/optuna-conditions.md says what to do instead."""
    study = create_study(study_name="variables")
    study.optimize(lambda trial: 1.0, n_trials=1, show_progress=False)  # its workers have started
    monkeypatch.setenv("HUB_HOME", "/of/the/script")

    def objective(trial):
        trial.set_user_attr("before", os.environ.get("HUB_HOME"))
        os.environ["HUB_HOME"] = "/of/the/objective"
        trial.set_user_attr("after", os.environ["HUB_HOME"])
        return 1.0

    study = create_study(study_name="more variables")
    study.optimize(objective, n_trials=1, show_progress=False)
    (trial,) = study.trials
    assert trial.user_attrs["before"] is None
    assert trial.user_attrs["after"] == "/of/the/objective"
