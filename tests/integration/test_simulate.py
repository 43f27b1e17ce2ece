"""A real study simulated from its ledger takes about what it took."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_a_real_study_on_its_own_devices_under_its_own_policy(site):
    site.penstock("run", EXAMPLES / "digits.yaml", timeout=120)
    study = site.reader.studies()[-1]
    rows = site.reader.epochs(study.id)
    took = max(row.at for row in rows) - min(row.at - row.seconds for row in rows)
    asked = ("--devices", "cpu:2x1", "--policy", "waterfill", "--json")
    found = json.loads(site.penstock("simulate", f"study:{study.name}", *asked))
    figures = found["policies"]["waterfill"]
    print(f"really {took:.2f} s, simulated {figures['makespan_s']:.2f} s")
    assert figures["makespan_s"] == pytest.approx(took, rel=0.25)
    assert figures["epochs"] == pytest.approx(len(rows), rel=0.25)
