"""A real study simulated from its ledger takes about what it took."""

from __future__ import annotations

import json

import pytest
from penstock import create_study
from user_code import users_objectives

pytestmark = pytest.mark.integration


def test_a_real_study_on_its_own_devices_under_its_own_policy(site):
    """Epochs of a twentieth of a second: much longer than what a busy machine adds to them."""
    study = create_study(direction="maximize", sampler="random")
    study.optimize(users_objectives.slow, n_trials=5, show_progress=False)
    rows = site.reader.epochs(study.id)
    took = max(row.at for row in rows) - min(row.at - row.seconds for row in rows)
    asked = ("--devices", "cpu:2x1", "--policy", "waterfill", "--json")
    found = json.loads(site.penstock("simulate", f"study:{study.study_name}", *asked))
    figures = found["policies"]["waterfill"]
    print(f"really {took:.2f} s, simulated {figures['makespan_s']:.2f} s")
    assert figures["epochs"] == len(rows) == 100
    assert figures["makespan_s"] == pytest.approx(took, rel=0.25)
