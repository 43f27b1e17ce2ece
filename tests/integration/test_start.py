"""``penstock run`` starts the services while the script imports, and none in vain."""

from __future__ import annotations

import os
import signal
from functools import partial

import psutil
import pytest
from patience import until
from penstock.app.host import locks
from servers.installation import Installation, is_forked, is_trainer

pytestmark = pytest.mark.integration

SCRIPT = """
import os, time
import penstock
from sklearn import datasets

def objective(trial):
    while trial.number == 0 and not os.path.exists("go"):
        time.sleep(0.01)
    return trial.suggest_float("x", 0, 1)

if __name__ == "__main__":
    {before}
    study = penstock.create_study(study_name="ahead")
    study.optimize(objective, n_trials=4, {options})
    print("done")
"""


@pytest.fixture
def site(tmp_path):
    site = Installation(tmp_path / "home", preload="torch", idle_stop=600.0)
    yield site
    site.close()


def script(tmp_path, before="", options=""):
    file = tmp_path / "train.py"
    file.write_text(SCRIPT.format(before=before, options=options))
    return file


def test_services_started_ahead_serve_the_script_and_outlive_a_killed_agent(site, tmp_path):
    waits = 'while not os.path.exists("imported"): time.sleep(0.01)'
    running = site.start("run", script(tmp_path, waits), cwd=tmp_path)
    launcher = until(lambda: locks.pid_of(site.settings.run, "launcher"))
    # One that needs a trainer while another one waits for the imports does not wait long itself.
    imported = "has imported sklearn.datasets"
    site.until(lambda: imported in site.log("launcher"), "what the script imports is there")
    scheduler = until(lambda: locks.pid_of(site.settings.run, "scheduler"))
    (tmp_path / "imported").touch()
    until(site.trainers)
    assert all(is_forked(trainer.pid) for trainer in site.trainers())
    locks.send_signal(site.settings.run, "agent", signal.SIGKILL)
    (tmp_path / "go").touch()
    assert "done" in site.finish(running)
    assert locks.pid_of(site.settings.run, "launcher") == launcher
    assert locks.pid_of(site.settings.run, "scheduler") == scheduler, "nobody has asked for others"
    others = [p for p in psutil.Process(launcher).children() if not is_trainer(p)]
    assert len(others) == 1, "one process has imported for both devices, and does so no second time"


@pytest.mark.slow
def test_a_script_may_still_choose_other_devices(site, tmp_path):
    (tmp_path / "go").touch()
    said = site.penstock("run", script(tmp_path, options='devices="cpu:1x1"'), cwd=tmp_path)
    assert "done" in said
    assert '"cpu:1x1"' in (site.settings.run / "up.json").read_text()


@pytest.mark.slow
def test_a_script_may_still_change_a_setting(site, tmp_path):
    (tmp_path / "go").touch()
    before = 'os.environ["PENSTOCK_POLICY"] = "fifo"'
    assert "done" in site.penstock("run", script(tmp_path, before), cwd=tmp_path)
    scheduler = psutil.Process(locks.pid_of(site.settings.run, "scheduler"))
    assert scheduler.environ()["PENSTOCK_POLICY"] == "fifo"


def test_a_script_that_fails_before_it_asks_leaves_nothing_running(site, tmp_path):
    site.penstock("run", script(tmp_path, "1 / 0"), status=1, cwd=tmp_path)
    for name in ("agent", "scheduler", "broker", "launcher"):
        assert not locks.is_running(site.settings.run, name)


@pytest.mark.slow
def test_a_script_that_is_killed_before_it_asks_leaves_nothing_on_few_cores(site, tmp_path):
    cores = sorted(os.sched_getaffinity(0))[:2]
    running = site.start(
        "run", script(tmp_path, "time.sleep(600)"), cwd=tmp_path,
        preexec_fn=partial(os.sched_setaffinity, 0, cores),
    )  # fmt: skip
    until(lambda: locks.pid_of(site.settings.run, "launcher"))
    running.kill()
    running.communicate()
    site.until(lambda: not locks.is_running(site.settings.run, "launcher"), "nobody needs it")
    assert not locks.is_running(site.settings.run, "scheduler")
