"""``penstock best``: value, parameters, metrics, and where the checkpoint is."""

import json

import pytest
from ledgers.study_ledger import make_study, study_spec
from penstock.app.cli.main import app
from penstock.app.common.console import text_of
from penstock.app.ledger.ledger import SqlLedger
from penstock.app.ledger.writes import Batch
from penstock.app.show.views.best import best_facts, best_view
from penstock.scheduler.model.decisions import Parent
from typer.testing import CliRunner

ID = "digits-1a2b"


def call(home, *arguments):
    env = {"PENSTOCK_HOME": str(home), "COLUMNS": "200"}
    return CliRunner(env=env).invoke(app, ["best", *arguments])


def test_the_best_trial_is_said_to_people_and_to_scripts(tmp_path):
    reader = make_study(tmp_path, study_spec())
    done = [trial for trial in reader.trials(ID) if trial.state == "completed"]
    best = max(done, key=lambda trial: trial.value)
    ledger = SqlLedger.open(f"sqlite:///{tmp_path / 'ledger.db'}")
    states = [(best.id, Parent(e, f"file://{tmp_path}/{e}.pt", "h"), 5.0) for e in (9, 3)]
    ledger.commit(
        Batch(durables=[*states, ("digits-1a2b-0000", Parent(1, "s3://b/0.pt", ""), 5.0)])
    )
    ledger.close()
    file = tmp_path / "9.pt"
    file.touch()
    facts = json.loads(call(tmp_path, "--json").stdout)
    assert facts["trial"] == best.number
    assert facts["value"] == best.value
    assert facts["params"] == best.params
    assert facts["metrics"] == {"accuracy": best.value}
    assert facts["checkpoint"] == {"epoch": 9, "uri": f"file://{file}", "gone": False}
    said = call(tmp_path, "digits").stdout
    assert f"digits complete: best trial {best.number}, accuracy {best.value:.4g}" in said
    assert "(last value, completed after 9 epochs)" in said
    assert f"checkpoint  epoch 9  file://{file}\n" in said
    file.unlink()
    assert json.loads(call(tmp_path, "--json").stdout)["checkpoint"]["gone"]
    assert f"file://{file}  (gone" in " ".join(call(tmp_path).stdout.split(" "))
    for name, value in best.params.items():
        line = next(line for line in said.splitlines() if name in line.split())
        assert (f"{value:.4g}" if isinstance(value, float) else value) in line


def test_a_running_study_has_its_best_so_far_and_perhaps_no_checkpoint(tmp_path):
    reader = make_study(tmp_path, study_spec(), turns=6)
    facts = best_facts(reader, reader.study(ID))
    assert facts["so_far"]
    assert facts["checkpoint"] is None
    said = call(tmp_path).stdout
    assert "digits running: best trial so far" in said
    assert "  (last value, " in said
    assert "none in the store" in said


def test_people_are_told_an_energy_only_where_something_was_measured(tmp_path):
    reader = make_study(tmp_path, study_spec())
    facts = best_facts(reader, reader.study(ID))
    assert facts["energy"].startswith("energy not measured")
    assert "energy" not in call(tmp_path).stdout
    measured = text_of(best_view(facts | {"energy": "3.0 J without 1 epoch"}))
    assert "  energy      3.0 J without 1 epoch\n" in measured


def test_a_study_without_a_value_says_so(tmp_path):
    make_study(tmp_path, study_spec(n_trials=2), fails=(0, 1))
    result = call(tmp_path, "--json")
    assert result.exit_code == 2
    assert result.stderr == "penstock: no trial of digits has a value yet, of 2\n"


@pytest.mark.parametrize("sign", ["minimize", "maximize"])
def test_the_best_is_what_the_direction_says(tmp_path, sign):
    reader = make_study(tmp_path, study_spec(direction=sign))
    done = [trial.value for trial in reader.trials(ID) if trial.state == "completed"]
    value = min(done) if sign == "minimize" else max(done)
    assert best_facts(reader, reader.study(ID))["value"] == value
