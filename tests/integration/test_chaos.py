"""Everything that can be killed is killed, and nothing comes out differently.

The same code as ``python -m benchmarks.chaos``, with fewer faults.
"""

from __future__ import annotations

import pytest
from penstock.app import locks
from penstock.benchmarks import _faults, chaos

FAULTS = 32


@pytest.mark.integration
def test_faults_of_every_kind_lose_nothing_double_nothing_and_change_no_bit():
    figures = chaos.campaign(FAULTS, seed=2)
    for process in locks._started:
        process.wait(10)
    assert figures["faults"] == FAULTS
    assert figures["faults_by_kind"].keys() == _faults.KINDS.keys()
    assert figures["epochs"] > FAULTS, "a fault counts only after an epoch"
    unharmed = {"lost": 0, "doubled": 0, "wrong": 0}
    assert {name: figures[name] for name in unharmed} == unharmed
