"""A study from a YAML file is the one that the same call in Python makes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from patience import PATIENCE

pytestmark = pytest.mark.integration

EXAMPLES = Path(__file__).parents[2] / "examples"


def said(reader, study):
    """All that a study says, but for its own name and the file's."""
    spec = json.loads(reader.study(study).spec_json)
    return {key: value for key, value in spec.items() if key not in ("id", "name", "argv")}


@pytest.mark.extension("report", "pages")
def test_the_example_runs_and_is_the_study_that_its_script_makes(site):
    process = site.start("run", EXAMPLES / "digits.yaml")
    printed, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, errors
    assert errors.count("live in the browser: penstock ui\n") == 1
    ran = site.reader.studies()[-1]
    assert ran.name.startswith("digits-"), "named after the file, as after a script"
    assert f"{ran.name} complete: best trial" in printed
    assert max(trial.value for trial in site.reader.trials(ran.id)) > 0.9
    line = site.penstock("submit", EXAMPLES / "digits.py")
    submitted = line.split()[-1]
    assert said(site.reader, submitted) == said(site.reader, ran.id)
    site.wait(submitted)


@pytest.mark.slow
def test_a_submitted_file_is_taken_up_again_and_a_changed_one_refused(site, tmp_path):
    (tmp_path / "train.py").write_text(
        "def objective(trial):\n    return trial.suggest_categorical('x', [1.0, 2.0])\n"
    )
    text = (
        "code: train:objective\nstudy_name: kept\nload_if_exists: true\nn_trials: 2\n"
        "space:\n  x: [1.0, 2.0]\n"
    )
    file = tmp_path / "study.yml"
    file.write_text(text)
    for _ in range(2):
        line = site.penstock("submit", file)
        assert line == "submitted kept: penstock watch kept\n"
    assert [study.name for study in site.reader.studies()].count("kept") == 1
    assert site.wait("kept").status == "complete"
    file.write_text(text.replace("n_trials: 2", "n_trials: 3"))
    site.penstock("submit", file)
    assert site.wait("kept").n_trials == 3, "more trials extend it"
    file.write_text(text.replace("n_trials: 2", "n_trials: 2\nlimits: {retries: 1}"))
    refused = site.penstock("submit", file, status=2)
    assert (
        "study.yml: study kept was submitted before and cannot be changed (limits.retries"
        in refused
    )
    file.write_text(text.replace("load_if_exists: true", "seed: 1"))
    assert "study.yml, line 2: study 'kept' exists already" in site.penstock(
        "submit", file, status=2
    )
    file.write_text(text.replace("kept", "new") + "devices: cpu:2y1\n")
    assert "study.yml, line 7: devices = 'cpu:2y1' is refused" in site.penstock(
        "submit", file, status=2
    )
