"""Studies that their users edit while they run on real devices."""

from __future__ import annotations

import os
import signal

import optuna
import pytest
from penstock import Float, FullBudget, UsageError, create_study
from penstock.app.host import locks
from user_code.users_trainables import Paced

pytestmark = [pytest.mark.integration, pytest.mark.extension("editing")]

KIND = {"metric": "loss", "sampler": "random", "seed": 5, "strategy": FullBudget(2)}


def test_a_study_is_edited_and_its_earlier_trials_stay_as_they_are(site, tmp_path):
    go = tmp_path / "go"
    space = {"lr": Float(1e-3, 1e-1, log=True), "pace": [1.0], "until": [str(go)]}
    study = create_study(study_name="edited", **KIND)
    study.submit(Paced, space, 6)
    site.until(lambda: len(site.reader.epochs(study.id)) > 0, "some epoch")
    said = site.penstock(
        "edit", "edited", "lr=0.5..0.9", "momentum=0.8..0.99", "--assume", "momentum=0.9",
        "--set", "device_hours=5", "--reason", "too slow",
    )  # fmt: skip
    assert "lr: Float(0.001, 0.1, log=True) → Float(0.5, 0.9, log=True)" in said
    pid = locks.pid_of(site.settings.run, "scheduler")
    os.kill(pid, signal.SIGKILL)
    site.until(lambda: locks.pid_of(site.settings.run, "scheduler") not in (None, pid))
    begun = {row.number for row in site.reader.trials(study.id) if row.epoch}
    study.edit({"lr": (0.7, 0.9)}, max_epochs=3, reason="higher still")
    with pytest.raises(UsageError, match="nothing of edited would change"):
        study.edit({"lr": (0.7, 0.9)})
    with pytest.raises(UsageError, match="edit\\(\\) takes no seed"):
        study.edit(seed=3)
    assert "higher still" in site.penstock("status", "edited")
    go.touch()
    assert site.wait(study.id).status == "complete"
    trials = study.trials
    assert {trial.params["lr"] < 0.1 for trial in trials if trial.number in begun} == {True}
    late = [trial for trial in trials if trial.params["lr"] >= 0.7]
    assert late, "those that had not begun were drawn again"
    assert all(0.8 <= trial.params["momentum"] <= 0.99 for trial in late)
    assert {trial.user_attrs["epoch"] for trial in late} == {3}
    # Optuna reads a study whose ranges have changed.
    optuna.create_study().add_trials(trials)
    ranges = {(t.distributions["lr"].low, t.distributions["lr"].high) for t in trials}
    assert ranges <= {(0.001, 0.1), (0.5, 0.9), (0.7, 0.9)}
    # The script that submitted it may run again: what was edited stays.
    again = create_study(study_name="edited", load_if_exists=True, **KIND)
    again.optimize(Paced, space, 6, show_progress=False)
    seed = {**KIND, "seed": 6}
    with pytest.raises(UsageError, match="seed was 5 and is 6"):
        create_study(study_name="edited", load_if_exists=True, **seed).optimize(Paced, space, 6)
    assert "is over: extend it first" in site.penstock("edit", "edited", "lr=0.5", status=2)
    page = tmp_path / "report.html"
    site.penstock("report", "edited", "-o", str(page))
    text = page.read_text()
    assert "What people changed while the study ran" in text
    assert "too slow" in text


def test_what_has_trained_before_an_edit_has_the_bits_of_a_study_that_was_not_edited(site):
    space = {"lr": Float(1e-3, 1e-1, log=True), "pace": [0.05], "until": ["never"]}
    study = create_study(study_name="edited-often", **KIND)
    study.submit(Paced, space, 8)
    site.until(lambda: len(site.reader.epochs(study.id)) > 0, "some epoch")
    study.edit({"lr": (0.2, 0.3)})
    assert site.wait(study.id).status == "complete"
    plain = create_study(study_name="unedited", **KIND)
    plain.optimize(Paced, space, 8, show_progress=False)
    kept = [t.number for t in study.trials if t.params == plain.trials[t.number].params]
    assert kept
    assert len(kept) < 8
    for number in kept:
        bits = [
            [
                (row.epoch, row.state_hash, row.value)
                for row in site.reader.epochs(each.id)
                if row.trial == site.reader.trials(each.id)[number].id
            ]
            for each in (study, plain)
        ]
        assert bits[0] == bits[1]
