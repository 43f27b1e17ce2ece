"""Hostile code, bytes, files and surroundings: nothing wedges, nothing leaks, nothing is wrong.

The same code as ``python -m tests.hostile``, with fewer attacks.
"""

from __future__ import annotations

import pytest
from patience import PATIENCE
from penstock.app.host import locks
from penstock.tests.hostile import campaign as hostile

#: Attacks of each kind that once broke something.
ATTACKS = (
    "objective, middle: pool, then segfault",
    "objective, middle: fork without exit",
    "reports: seal not ASCII",
    "queue: deep JSON",
    "trainers' logs: a folder",
    "client's: penstock.py on the path",
)
NONE = (
    *("wedged", "leaked_processes", "crashed_services", "wrong", "unbounded_bytes", "unclear"),
    "failed",
)


@pytest.mark.integration
@pytest.mark.slow
def test_after_each_attack_the_slots_are_free_and_nothing_is_left_or_wrong():
    others = set(locks._started)  # of tests before this one, in the same process
    figures = hostile.campaign(hostile.of(hostile.draw(0), ATTACKS), usual=2)
    for process in set(locks._started) - others:
        process.wait(PATIENCE)
    assert figures["attacks"] == len(ATTACKS)
    assert {name: figures[name] for name in NONE if figures[name]} == {}
