"""The rate at which attempts are lost, and the resulting rate of durable states."""

from __future__ import annotations

import pytest
from penstock.profiling.costs.failure_rate import (
    MEMORY,
    PRIOR,
    SHORTEST,
    FaultTable,
    checkpoint_interval,
)


def test_before_anything_was_observed_the_prior_stands():
    assert FaultTable().mtbf == PRIOR


def test_observations_outweigh_the_prior():
    table = FaultTable()
    for _ in range(100):
        table.observe_work(60.0)
        table.observe_loss()
    assert table.mtbf == pytest.approx(60.0 + PRIOR / 100, rel=0.05)


def test_work_without_a_loss_makes_one_less_likely():
    table = FaultTable()
    table.observe_work(5 * PRIOR)
    assert table.mtbf == pytest.approx(6 * PRIOR, rel=0.01)


def test_what_was_observed_long_ago_fades():
    table = FaultTable()
    for _ in range(1000):
        table.observe_loss()
    before = table.mtbf
    for _ in range(3000):
        table.observe_work(MEMORY / 100)
    assert before < 4.0
    assert table.losses < 1.0
    assert table.mtbf > MEMORY / 3


def test_the_interval_is_the_one_that_costs_least():
    """Writing every ``t`` costs ``cost / t``; a loss each ``mtbf`` repeats ``t / 2`` on average."""
    cost, mtbf = 0.3, 900.0
    price = {t / 10: cost / (t / 10) + t / 20 / mtbf for t in range(1, 2000)}
    assert min(price, key=price.get) == pytest.approx(checkpoint_interval(cost, mtbf), abs=0.1)


def test_a_checkpoint_that_costs_nothing_is_still_not_written_without_end():
    assert checkpoint_interval(0.0, 3600.0) == checkpoint_interval(1e-9, 1.0) == SHORTEST
