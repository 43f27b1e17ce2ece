"""The figures of the benchmark of ordinary studies, and its nets."""

import pytest
import torch
from penstock.benchmarks.ordinary import figures as ordinary
from penstock.benchmarks.ordinary.sides import CASES, SIDES, Ran
from penstock.benchmarks.peers import _ordinary_work as work


def test_every_case_has_code_of_its_own_and_its_net_takes_its_data():
    assert set(CASES) == set(work.FILES) == set(work.SPLITS)
    inputs = {
        "conv": torch.zeros(2, 3, 32, 32),
        "residual": torch.zeros(2, 3, 32, 32),
        "gpt": torch.zeros(2, work.CONTEXT, dtype=torch.int64),
        "table": torch.zeros(2, 64),
        "text": torch.zeros(2, work.WORDS, dtype=torch.int64),
    }
    shapes = {case: tuple(work.network(case)(each).shape) for case, each in inputs.items()}
    assert shapes == {
        "conv": (2, 10),
        "residual": (2, 10),
        "gpt": (2, 256, work.CONTEXT),
        "table": (2, 10),
        "text": (2, 20),
    }


def test_both_sides_have_the_same_configurations():
    assert work.points(3) == work.points(3)
    assert len(work.points(0)) == work.TRIALS
    assert work.points(0) != work.points(1)


def test_the_area_counts_the_best_so_far_over_time():
    ran = Ran(4.0, [(1.0, 0.5), (2.0, 0.4), (3.0, 0.7)])
    assert ran.best == 0.7
    assert ran.area(4.0) == pytest.approx((0.5 * 2 + 0.7) / 4)
    assert ran.area(8.0) == pytest.approx((0.5 * 2 + 0.7 * 5) / 8)


def test_ratios_are_the_peers_time_over_ours_in_pairs():
    rounds = [
        {side: Ran(10.0, [(1.0, 0.5)]) for side in SIDES} | {"optuna": Ran(each, [(2.0, 0.4)])}
        for each in (12.0, 15.0)
    ]
    found = ordinary.figures_of("conv", rounds)
    ratio = found["over_optuna.default.conv"]
    assert ratio["mean"] == pytest.approx((1.2 * 1.5) ** 0.5)
    assert ratio["interval"]["low"] < ratio["mean"] < ratio["interval"]["high"]
    assert found["best_over_optuna.default.conv"]["mean"] == pytest.approx(0.1)
    every = ordinary.overall({"conv": rounds, "table": rounds})
    assert every["over_optuna.default.all"]["mean"] == pytest.approx(ratio["mean"])
