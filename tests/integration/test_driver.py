"""The program that drives a study may come and go; so may the scheduler."""

from __future__ import annotations

import importlib
import json
import signal
import sys
import time
from collections import Counter
from functools import partial

import penstock
import pytest
from patience import PATIENCE
from penstock import Float, UsageError, create_study, load_study
from penstock.app.host import locks
from penstock.app.server.services import services
from servers.installation import Installation
from user_code import users_objectives

pytestmark = pytest.mark.integration

SPACE = {"x": Float(0.0, 1.0)}
#: A study whose last trial waits for a file named ``go`` in its folder.
DRIVER = """
import time
from pathlib import Path
import penstock
import psutil

def objective(trial):
    x = trial.suggest_float("x", 0, 1)
    for step in range(5):
        trial.report(x, step)
    while trial.number == 3 and not Path(__file__).with_name("go").exists():
        time.sleep(0.05)
    return x

if __name__ == "__main__":
    # With a strategy n_trials counts in all; without one it would be four more, as in Optuna.
    study = penstock.create_study(
        study_name="driven", strategy=penstock.FullBudget(5), load_if_exists=True
    )
    study.optimize(objective, n_trials=4)
    print("best", study.best_trial.number)
"""


#: Twenty epochs a trial; the last one waits for a file named ``go`` in its folder.
GATED = """
import time
from pathlib import Path

def objective(trial):
    x = trial.suggest_float("x", 0, 1)
    for step in range(20):
        while step == 19 and not Path(__file__).with_name("go").exists():
            time.sleep(0.05)
        trial.report(x, step)
    return x
"""


@pytest.fixture
def gated(tmp_path, monkeypatch):
    """An objective whose study is not over, however slow this machine is, before ``go`` is made."""
    (tmp_path / "gated.py").write_text(GATED)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "gated", raising=False)
    return importlib.import_module("gated").objective


def epochs(site, study):
    return [(row.trial, row.epoch) for row in site.reader.epochs(study)]


@pytest.mark.slow
def test_a_killed_driver_loses_nothing_and_run_again_it_takes_the_study_up(site, tmp_path):
    script = tmp_path / "driver.py"
    script.write_text(DRIVER)
    driver = site.python(script)
    site.until(lambda: any(epochs(site, study) for study in studies(site, "driven")), "an epoch")
    driver.send_signal(signal.SIGKILL)
    driver.communicate()
    facts = site.facts("driven")
    assert facts["status"] == "running"
    study = facts["id"]
    (tmp_path / "go").touch()
    assert site.wait(study).status == "complete"
    rows = epochs(site, study)
    assert len(rows) == len(set(rows)) == 4 * 5
    assert "best" in site.finish(site.python(script))
    assert studies(site, "driven") == [study]
    assert epochs(site, study) == rows, "nothing was run a second time"


def studies(site, name):
    """The ids of all studies of this name."""
    try:
        return [row.id for row in site.reader.studies() if row.name == name]
    except penstock.BackendError:  # no ledger yet
        return []


def test_submit_returns_at_once_and_another_process_finds_the_results(site):
    study = create_study(study_name="submitted", direction="maximize", sampler="random")
    gate = site.settings.home / "submitted"
    study.submit(partial(users_objectives.waits, gate=str(gate)), SPACE, 8)
    assert study.status == "running", "its trials wait for the file"
    gate.touch()
    study.wait()
    assert study.status == "complete"
    program = "import penstock; print(penstock.load_study('submitted').best_trial.number)"
    said = site.finish(site.python("-c", program))
    assert int(said) == study.best_trial.number
    assert load_study(study.id).best_value == max(trial.value for trial in study.trials)
    frame = study.trials_dataframe()
    assert list(frame["state"]) == ["COMPLETE"] * 8
    with pytest.raises(UsageError, match=r"no study 'submited'.*submitted"):
        load_study("submited")


def test_callbacks_hear_of_every_trial_once_when_it_has_ended(site):
    heard = []
    study = create_study(study_name="with callbacks", sampler="random")
    study.optimize(
        users_objectives.quick,
        SPACE,
        4,
        callbacks=[lambda s, trial: heard.append((s, trial.number, trial.state.name, trial.value))],
        show_progress=False,
    )
    assert sorted(number for _, number, _, _ in heard) == [0, 1, 2, 3]
    assert {(s, state) for s, _, state, _ in heard} == {(study, "COMPLETE")}
    assert {number: value for _, number, _, value in heard} == {
        trial.number: trial.value for trial in study.trials
    }


def test_an_exception_of_a_callback_reaches_the_driver_and_the_study_goes_on(site, tmp_path):
    gate = tmp_path / "gate"
    objective = partial(users_objectives.waits, gate=str(gate))

    def callback(study, trial):
        raise KeyboardInterrupt

    study = create_study(study_name="interrupted", sampler="random")
    with pytest.raises(KeyboardInterrupt):
        study.optimize(objective, SPACE, 4, callbacks=[callback], show_progress=False)
    assert study.status == "running"
    gate.touch()
    study.wait()
    assert [trial.state.name for trial in study.trials] == ["COMPLETE"] * 4


def test_enqueued_configurations_are_tried_first_before_and_after_submitting(site):
    study = create_study(study_name="enqueued", sampler="tpe")
    study.enqueue_trial({"x": 0.125})
    study.submit(users_objectives.slow, SPACE, 6)
    study.enqueue_trial({"x": 0.875})
    with pytest.raises(UsageError, match=r"params\['x'\] = 2 is refused: allowed is 0.0 to 1.0"):
        study.enqueue_trial({"x": 2})
    study.wait()
    drawn = [trial.params["x"] for trial in study.trials]
    assert len(drawn) == 6
    assert drawn[0] == 0.125
    assert drawn.count(0.875) == 1


def test_cancel_frees_the_slots_and_keeps_what_has_run(site):
    study = create_study(study_name="cancelled", sampler="random")
    study.submit(users_objectives.slow, SPACE, 2000)
    site.until(lambda: len(epochs(site, study.id)) >= 4, "some epochs")
    assert "cancelled is cancelled" in site.penstock("cancel", "cancelled")
    site.wait(study.id)
    assert study.status == "cancelled"
    assert len(epochs(site, study.id)) >= 4
    states = {trial.state for trial in site.reader.trials(study.id)}
    assert "running" not in states
    after = create_study(study_name="after the cancelled", sampler="random")
    began = time.monotonic()
    after.optimize(users_objectives.quick, SPACE, 4, show_progress=False)
    # Not the 2000 x 1 s / 2 slots that the cancelled one would have taken.
    assert time.monotonic() - began < PATIENCE
    assert {row.device + str(row.slot) for row in site.reader.epochs(after.id)} == {
        row.device + str(row.slot) for row in site.reader.epochs(study.id)
    }
    assert "is cancelled already" in site.penstock("cancel", "cancelled", status=2)


def test_after_a_time_limit_no_trial_begins_and_those_at_work_end_well(site):
    study = create_study(study_name="limited", sampler="random")
    study.optimize(users_objectives.slow, SPACE, 2000, timeout=1.0, show_progress=False)
    assert study.status == "complete"
    ended = Counter(row.state for row in site.reader.trials(study.id))
    assert ended.keys() == {"completed", "cancelled"}
    assert 0 < ended["completed"] < 2000, "a thousand seconds"


def test_two_studies_at_once_share_the_slots_and_do_not_mix(site):
    first = create_study(study_name="first of two", direction="maximize", sampler="grid")
    second = create_study(study_name="second of two", direction="minimize", sampler="grid")
    first.submit(users_objectives.slow, {"x": [0.25, 0.5, 0.75]})
    second.submit(users_objectives.slow, {"x": [0.125, 0.375]})
    first.wait()
    second.wait()
    assert (first.best_params, first.best_value) == ({"x": 0.75}, 0.75)
    assert (second.best_params, second.best_value) == ({"x": 0.125}, 0.125)
    listed = {row["name"]: row["status"] for row in json.loads(site.penstock("ls", "--json"))}
    assert listed["first of two"] == listed["second of two"] == "complete"


def test_a_second_scheduler_waits_and_takes_over_when_the_first_is_killed(site, gated, tmp_path):
    study = create_study(study_name="handed over", sampler="random")
    study.submit(gated, SPACE, 4)
    run = site.settings.run
    first = locks.pid_of(run, "scheduler")
    log = site.settings.logs / "second-scheduler.log"
    with log.open("w") as output:
        second = site.start("scheduler", stdout=output, stderr=output)
    site.until(lambda: "waiting for it" in log.read_text(), "a second scheduler that waits")
    assert locks.pid_of(run, "scheduler") == first
    assert locks.send_signal(run, "scheduler", signal.SIGKILL)
    took_over = site.until(
        lambda: (pid := locks.pid_of(run, "scheduler")) not in (None, first) and pid
    )
    assert took_over == second.pid, "the one that waited is the next"
    (tmp_path / "go").touch()
    study.wait()
    rows = epochs(site, study.id)
    assert len(rows) == len(set(rows)) == 4 * 20
    # What it found in the ledger, and not nothing.
    assert "restored 0 events" not in log.read_text()
    locks.stop(run, "scheduler", grace=10)
    second.communicate(timeout=PATIENCE)


@pytest.mark.slow
def test_down_stops_everything_and_a_study_goes_on_with_the_next_up(site, gated, tmp_path):
    study = create_study(study_name="through the night", sampler="random")
    study.submit(gated, SPACE, 4)
    site.until(lambda: epochs(site, study.id), "an epoch")
    assert "agent" in site.penstock("down")
    assert not any(status.pid for status in services.statuses(site.settings))
    before = len(epochs(site, study.id))
    assert site.facts("through the night")["status"] == "running"
    site.penstock("up")
    (tmp_path / "go").touch()
    study.wait()
    rows = epochs(site, study.id)
    assert before < len(rows) == len(set(rows)) == 4 * 20


def test_a_scheduler_whose_locks_file_is_gone_ends_and_another_one_takes_over(tmp_path):
    site = Installation(tmp_path / "home", devices="cpu:1x1")
    run = site.settings.run
    try:
        site.penstock("up")
        before = locks.pid_of(run, "scheduler")
        (run / "scheduler.lock").unlink()
        site.until(lambda: locks.pid_of(run, "scheduler") not in (None, before), "another one")
        log = site.settings.logs / "scheduler.log"
        site.until(lambda: log.read_text().count("restored") == 2, "its restore")
    finally:
        site.penstock("down")
    assert (
        "the lock file of this scheduler was moved or deleted: exiting"
        in (site.settings.logs / "scheduler.log").read_text()
    )
