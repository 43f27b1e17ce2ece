"""Users' policies, on simulated devices."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from penstock.extensions.simulation.experiment import run as simulation
from penstock.extensions.simulation.experiment import simulated_devices
from penstock.extensions.simulation.workload import StudyWork, TrialWork, Workload, study_spec


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    """The process that runs a policy finds the module of the tests' folder."""
    paths = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))


def test_a_users_policy_may_have_the_trials_of_one_study_give_way_to_those_of_another():
    trial = TrialWork(10.0, ((1, 1.0),), 6)
    studies = tuple(
        StudyWork(
            study_spec(f"job {number}", 1, 1, number=number), (trial,), 14.0 * number, budgets=True
        )
        for number in range(3)
    )
    done = simulation(
        Workload("by hand", studies, overhead=0.0),
        simulated_devices("gpu:1"),
        ["user_code.users_policies:across"],
    )
    [outcome] = done.outcomes
    assert outcome.planless == ()
    ends = {row.trial[:2]: row.at for row in outcome.epochs}
    assert ends == pytest.approx({"s2": 90.0, "s1": 140.0, "s0": 180.0}, abs=1.0)
