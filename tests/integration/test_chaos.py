"""Everything that can be killed is killed, and nothing comes out differently.

The same code as ``python -m benchmarks.chaos``, with fewer faults.
"""

from __future__ import annotations

import pytest
from patience import PATIENCE
from penstock.app.host import locks

from testkit.faults import campaign as chaos
from testkit.faults import faults

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.extension("sharing")]

FAULTS = 16
#: Faults that only gangs meet, except slow ones: the rest is the benchmark's.
OF_GANGS = ("leader's trainer", "member's worker", "meeting missed", "checkpoint changed")
#: Faults that hit several trials at a time if they take turns.
OF_LANES = ("trainer", "worker", "worker stopped", "agent")
#: Faults that lose copies of states, attempts, or the scheduler's knowledge of waiting trials.
OF_PREFIXES = ("trainer", "worker", "agent", "scheduler")
#: Faults that leave batches half written or unclaimed, and shared memory without an owner.
OF_READING = ("trainer", "worker", "agent", "scheduler")
UNHARMED = {"lost": 0, "doubled": 0, "wrong": 0}


def test_faults_of_every_kind_lose_nothing_double_nothing_and_change_no_bit():
    figures = chaos.campaign(FAULTS, seed=2)
    reap()
    assert figures["faults"] == FAULTS
    assert figures["faults_by_kind"].keys() == faults.KINDS.keys()
    assert figures["epochs"] > FAULTS, "a fault counts only after an epoch"
    assert {name: figures[name] for name in UNHARMED} == UNHARMED


def test_what_befalls_a_gang_changes_no_bit_of_what_one_device_gives():
    figures = chaos.campaign(len(OF_GANGS), seed=1, gangs=True, only=OF_GANGS)
    reap()
    assert figures["faults_by_kind"].keys() == set(OF_GANGS)
    assert max(figures["epochs_by_width"]) > 1
    assert {name: figures[name] for name in UNHARMED} == UNHARMED


def test_faults_beside_others_in_a_lane_change_no_bit():
    figures = chaos.campaign(len(OF_LANES), seed=3, lanes=True, only=OF_LANES)
    reap()
    assert figures["faults_by_kind"].keys() == set(OF_LANES)
    assert {name: figures[name] for name in UNHARMED} == UNHARMED


@pytest.mark.extension("prefixes")
def test_faults_where_trials_take_over_epochs_change_no_bit_of_what_each_would_train():
    figures = chaos.campaign(len(OF_PREFIXES), seed=4, prefixes=True, only=OF_PREFIXES)
    reap()
    assert figures["faults_by_kind"].keys() == set(OF_PREFIXES)
    assert figures["taken_over"] > 0
    assert {name: figures[name] for name in UNHARMED} == UNHARMED


def test_faults_where_trainers_read_once_change_no_bit_and_leave_nothing_in_memory():
    figures = chaos.campaign(len(OF_READING), seed=5, reading=True, only=OF_READING)
    reap()
    assert figures["faults_by_kind"].keys() == set(OF_READING)
    assert max(figures["epochs_by_readers"]) > 1
    assert {name: figures[name] for name in UNHARMED} == UNHARMED
    assert figures["left_in_memory"] == 0


def reap():
    for process in locks._started:
        process.wait(PATIENCE)
