"""A study goes from one installation to another, and the other one survives what may come."""

from __future__ import annotations

import json
import os
import signal

import pytest
from penstock import load_study
from penstock.app.host import locks
from servers.installation import Installation, variables_of

pytestmark = pytest.mark.integration

SCRIPT = """
import penstock

def objective(trial):
    x = trial.suggest_float("x", -1, 1)
    kind = trial.suggest_categorical("kind", ["a", "b"])
    for step in range(3):
        trial.report(x * x, step)
    return x * x

if __name__ == "__main__":
    penstock.create_study(study_name="drawn", sampler="random").optimize(objective, n_trials=4)
"""


@pytest.mark.extension("exports")
@pytest.mark.extension("report")
@pytest.mark.slow
def test_a_study_is_taken_elsewhere_and_outlives_a_killed_scheduler(site, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    site.penstock("run", script)
    exported = tmp_path / "drawn.json"
    assert site.penstock("export", "drawn", "-o", exported) == f"{exported}\n"
    study = json.loads(exported.read_text())
    study["spec"] |= {"name": "elsewhere", "id": "elsewhere-1"}
    other = tmp_path / "other.json"
    other.write_text(json.dumps(study))
    there = load_study("drawn").trials
    here = Installation(tmp_path / "home")
    try:
        id_ = site.reader.study("drawn").id
        assert here.penstock("import", exported) == "imported drawn: penstock report drawn\n"
        assert f"study {id_} exists already" in here.penstock("import", exported, status=2)
        pid = locks.pid_of(here.settings.run, "scheduler")
        os.kill(pid, signal.SIGKILL)
        here.until(lambda: locks.pid_of(here.settings.run, "scheduler") not in (None, pid))
        here.penstock("import", other)
        here.penstock("down")
        listed = json.loads(here.penstock("ls", "--json"))
        assert [(row["name"], row["status"]) for row in listed] == [
            ("drawn", "complete"), ("elsewhere", "complete"),
        ]  # fmt: skip
        with variables_of(here):
            study = load_study("drawn")
            assert study.trials == there
            assert study.best_trial.distributions
            assert study.status == "complete"
        assert str(here.settings.home) in here.penstock("report", "elsewhere")
        best = json.loads(here.penstock("best", "drawn", "--json"))
        assert best["value"] == study.best_value
        # What runs here afterwards finds the name taken, and every other one free.
        taken = here.penstock("run", script, status=2)
        assert "study 'drawn' exists already" in taken
        script.write_text(SCRIPT.replace("drawn", "new"))
        here.penstock("run", script)
        assert here.facts("new")["status"] == "complete"
    finally:
        here.close()
