"""Schedules by ``Steps`` on real workers: who is killed comes back with the same bits."""

from __future__ import annotations

import pytest
from penstock import FullBudget, Steps, create_study
from penstock.tasks.trainer.made_once import TrackedParams
from penstock.tasks.trainer.shared_data import SharedData
from penstock.tasks.training import determinism, loop
from user_code import trainees

pytestmark = pytest.mark.integration

SEED = 5


def test_a_grid_of_schedules_whose_trainers_are_killed_has_the_bits_of_trials_trained_here(
    site, monkeypatch
):
    study = create_study(
        study_name="schedules", direction="maximize", metric="accuracy", sampler="grid",
        strategy=FullBudget(40), seed=SEED,
    )  # fmt: skip
    study.enqueue_trial({"lr": 0.1, "lr@2": 0.02, "lr@20": 0.002})
    lr = Steps({0: [0.1, 0.05], 2: [0.02, 0.01], 20: [0.002, 0.001]})
    space = {"lr": lr, "weight": [1.0], "weight_decay": Steps({0: [0.0], 1: [0.1]})}
    study.submit(trainees.Stepped, space)
    site.until(
        lambda: any(row.epoch > 2 for row in site.reader.epochs(study.id)), "a piece has entered"
    )
    for process in site.trainers():
        process.kill()
    assert not site.reader.study(study.id).finished_at
    assert site.wait(study.id).status == "complete"

    trials, rows = site.reader.trials(study.id), site.reader.epochs(study.id)
    assert len(trials) == 8
    assert trials[0].params["lr@20"] == 0.002
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    determinism.configure()
    data = SharedData()
    for trial in trials:
        reads = TrackedParams(trial.params)
        code = trainees.Stepped(reads)
        run = loop.start(code, data.of(code, reads), SEED, trial.number, pieces=reads.pieces)
        accepted = {row.epoch: row.state_hash for row in rows if row.trial == trial.id}
        while run.epoch < trial.epoch:
            loop.run_epoch(run, lambda *_: None, evaluated=False)
            assert run.hash() == accepted[run.epoch], (trial.number, run.epoch)
    assert len(rows) == 8 * 40
