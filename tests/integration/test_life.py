"""A study's life with real devices: paused, its scheduler killed, resumed, and extended."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from optuna.trial import TrialState
from penstock import Float, FullBudget, create_study, load_study
from penstock.app.host import locks
from user_code.users_trainables import Paced

pytestmark = pytest.mark.integration

EXAMPLES = Path(__file__).parents[2] / "examples"


def table(site, study):
    """Return the state hash and the value of every epoch, by trial and epoch."""
    rows = site.reader.epochs(study.id)
    found = {(row.trial.rpartition("-")[2], row.epoch): (row.state_hash, row.value) for row in rows}
    assert len(found) == len(rows)
    return found


def test_pause_kill_resume_and_extend_give_the_table_of_an_undisturbed_study(site, tmp_path):
    """Five trials at once; and three, paused in the middle, of which two more are made later."""
    go = tmp_path / "go"
    space = {"lr": Float(1e-3, 1e-1, log=True), "pace": [0.3], "until": [str(go)]}
    kind = {"metric": "loss", "sampler": "random", "strategy": FullBudget(6), "seed": 5}
    paused = create_study(study_name="paused", **kind)
    paused.submit(Paced, space, 3)
    site.until(lambda: len(site.reader.epochs(paused.id)) > 2, "some epochs")
    paused.pause()
    site.until(lambda: not site.reader.running(), "what ran ends its epoch")
    before = table(site, paused)
    assert 2 < len(before) < 3 * 6
    pid = locks.pid_of(site.settings.run, "scheduler")
    os.kill(pid, signal.SIGKILL)
    site.until(lambda: locks.pid_of(site.settings.run, "scheduler") not in (None, pid))
    go.touch()
    undisturbed = create_study(study_name="undisturbed", **kind)
    undisturbed.optimize(Paced, space, 5, show_progress=False)
    assert table(site, paused) == before, "other studies run, a paused one does not"
    assert paused.status == "paused"
    assert "paused is paused," in site.penstock("plan")
    assert "paused is paused already" in site.penstock("pause", "paused", status=2)
    paused.resume()
    assert site.wait(paused.id).status == "complete"
    assert len(table(site, paused)) == 3 * 6
    assert "goes on to 4 trials" in site.penstock("extend", "paused", "--by", "1")
    assert site.wait(paused.id).status == "complete"
    paused.optimize(Paced, space, 5, show_progress=False)
    again = create_study(study_name="paused", load_if_exists=True, **kind)
    again.optimize(Paced, space, 3, show_progress=False)
    assert table(site, paused) == table(site, undisturbed), "nothing was done again"
    assert site.reader.study("paused").n_trials == 5
    assert len(site.reader.trials(paused.id)) == 5


@pytest.mark.extension("report")
def test_a_study_is_asked_and_told_while_its_scheduler_is_killed(site, tmp_path):
    study = create_study(study_name="asked", direction="maximize", sampler="tpe", seed=1)
    space = {"x": Float(0.0, 1.0)}
    first = study.ask(space)
    pid = locks.pid_of(site.settings.run, "scheduler")
    os.kill(pid, signal.SIGKILL)
    second = load_study("asked").ask(space)
    assert (first.number, second.number) == (0, 1)
    assert [site.facts("asked")["trials"], study.status] == [{"running": 2}, "running"]
    study.tell(second, 0.5)
    study.tell(first, state=TrialState.FAIL)
    for wrong in (second, 1, 7):
        with pytest.raises(ValueError, match=r"Cannot tell a COMPLETE trial|number 7"):
            study.tell(wrong, 0.5)
    study.close()
    assert study.status == "complete"
    assert (study.best_trial.number, study.best_value) == (1, 0.5)
    site.penstock("report", "asked", "-o", tmp_path / "report.html")
    assert site.penstock("gc", "--dry-run").endswith("would be freed\n")


def test_the_example_of_ask_and_tell(site):
    out = site.finish(site.python(EXAMPLES / "ask_tell.py"))
    assert "a yield of 0." in out
