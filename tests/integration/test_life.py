"""A study's life with real devices: paused, its scheduler killed, resumed, and extended."""

from __future__ import annotations

import os
import signal
import time

import pytest
from penstock import Float, FullBudget, create_study
from penstock.app import locks
from users_trainables import Paced

pytestmark = pytest.mark.integration


def table(site, study):
    """What every epoch came to, by trial and epoch."""
    rows = site.reader.epochs(study.id)
    found = {(row.trial.rpartition("-")[2], row.epoch): (row.state_hash, row.value) for row in rows}
    assert len(found) == len(rows)
    return found


def test_pause_kill_resume_and_extend_give_the_table_of_an_undisturbed_study(site, tmp_path):
    """Five trials at once; and three, paused in the middle, of which two more are made later."""
    go = tmp_path / "go"
    space = {"lr": Float(1e-3, 1e-1, log=True), "pace": [0.05], "until": [str(go)]}
    kind = {"metric": "loss", "sampler": "random", "strategy": FullBudget(6), "seed": 5}
    paused = create_study(study_name="paused", **kind)
    paused.submit(Paced, space, 3)
    site.until(lambda: len(site.reader.epochs(paused.id)) > 2, 60, "some epochs")
    assert "paused is paused" in site.penstock("pause", "paused")
    site.until(lambda: not site.reader.running(), 30, "what ran ends its epoch")
    before = table(site, paused)
    assert 2 < len(before) < 3 * 6
    pid = locks.pid_of(site.settings.run, "scheduler")
    os.kill(pid, signal.SIGKILL)
    site.until(lambda: locks.pid_of(site.settings.run, "scheduler") not in (None, pid))
    go.touch()
    undisturbed = create_study(study_name="undisturbed", **kind)
    undisturbed.optimize(Paced, space, 5, show_progress=False)
    assert table(site, paused) == before, "other studies run, a paused one does not"
    assert site.facts("paused")["status"] == "paused"
    assert "paused" in site.penstock("ls")
    assert "paused is paused already" in site.penstock("pause", "paused", status=2)
    paused.resume()
    assert site.wait(paused.id).status == "complete"
    assert len(table(site, paused)) == 3 * 6
    assert "goes on to 4 trials" in site.penstock("extend", "paused", "--by", "1")
    assert site.wait(paused.id).status == "complete"
    paused.optimize(Paced, space, 5, show_progress=False)
    began = time.monotonic()
    again = create_study(study_name="paused", load_if_exists=True, **kind)
    again.optimize(Paced, space, 3, show_progress=False)
    assert time.monotonic() - began < 5, "nothing is to be done"
    assert table(site, paused) == table(site, undisturbed)
    assert site.facts("paused")["n_trials"] == 5
    assert len(site.reader.trials(paused.id)) == 5
