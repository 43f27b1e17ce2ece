"""The sums of ``benchmarks.peers``, and that Penstock's part trains as the plain loop does."""

from __future__ import annotations

import importlib

import pytest

peers = importlib.import_module("benchmarks.peers.__main__")
STEP = {"conv": 0.005, "mlp": 0.001}


def test_every_system_has_the_same_studies_and_the_long_epochs_are_few():
    jobs = peers.jobs(list(peers.EPOCHS), STEP)
    assert jobs[0]["length"] == "", "warms up"
    cells = {(job["tuner"], job["length"]) for job in jobs[1:]}
    assert len(cells) == len(jobs) - 1 == 3 * 3 + 2
    assert {job["steps"] for job in jobs[1:]} == {2, 20, 200, 2000, 10}
    assert jobs == peers.jobs(list(peers.EPOCHS), STEP), "drawn anew, the same"


def test_shares_and_where_we_lose():
    jobs = peers.jobs(["100ms"], {"conv": 0.1})
    figures = {}
    for system, wall in {"ray": 10.0, "optuna": 3.0, "penstock": 2.0}.items():
        one = {"wall_s": wall, "epochs": 20, "training_s": 2.0}
        found = {"startup_s": 1.0, "idle_mb": 2.0, "jobs": [one] * len(jobs)}
        figures |= peers.figures_of(system, jobs, found)
    assert figures["ray.asha.100ms.busy_share"] == pytest.approx(0.1)
    assert figures["ray.asha.100ms.ms_an_epoch"] == pytest.approx(1000.0)
    lost = peers.verdict(figures, jobs, "penstock", ["ray", "optuna"])
    assert lost == [f"optuna {tuner}.100ms 1.50" for tuner in peers.TUNERS]
    assert figures["ahead.penstock.ray.random.100ms"] == pytest.approx(5.0)


def test_the_curve_falls_and_knows_the_best_rate():
    training = importlib.import_module("_training")
    assert training.curve(0.01, 3) < training.curve(0.01, 2)
    assert training.curve(0.01, 2) < training.curve(0.1, 2)


def test_penstocks_trial_reports_the_same_curve():
    from penstock.tasks.training import loop

    study, training = map(importlib.import_module, ("penstock_study", "_training"))
    code = study.Trial({"lr": 0.02, "steps": 2})
    made = loop.start(code, code.data(), seed=0, number=0)
    for epoch in (1, 2):
        metrics = loop.run_epoch(made, lambda *_: None).metrics
        assert metrics["loss"] == pytest.approx(training.curve(0.02, epoch))
