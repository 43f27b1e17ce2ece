"""Forecasts of which study is in time for its deadline, on simulated devices."""

from __future__ import annotations

from dataclasses import replace

import pytest
from penstock.extensions.simulation.experiment import simulated_devices
from penstock.extensions.simulation.simulator import simulate
from penstock.extensions.simulation.workload import (
    SimulatedTraining,
    StudyWork,
    TrialWork,
    Workload,
    study_spec,
)
from penstock.scheduler.model.study import StrategySpec


@pytest.mark.extension("limits")
@pytest.mark.parametrize(("policy", "in_time"), [("edf", True), ("fifo", False)])
def test_under_edf_a_study_meets_the_deadline_that_it_misses_in_order_of_arrival(policy, in_time):
    long = study_spec("long", 1, 1, strategy=StrategySpec("full", 10), number=0)
    short = study_spec("short", 1, 1, strategy=StrategySpec("full", 2), number=1)
    short = replace(short, deadline=60.0)
    job = TrialWork(10.0, ((1, 1.0),))
    work = Workload("two", (StudyWork(long, (job,)), StudyWork(short, (job,), arrives=5.0)))
    done = simulate(
        [long, short],
        simulated_devices("gpu:1"),
        SimulatedTraining(work),
        policy=policy,
        arrivals={short.id: 5.0},
    )
    epochs = sum(row.trial.startswith(short.id) for row in done.epochs)
    assert (epochs == 2) == in_time
