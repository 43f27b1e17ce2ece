"""Idle time by cause, on hand-worked timelines."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from penstock.app.ledger.rows import EpochRow
from penstock.app.show.views.utilisation import CAUSES, usage, words
from penstock.scheduler.model.study import StrategySpec

FULL = StrategySpec("full", max_epochs=2)
HALVING = StrategySpec("halving", max_epochs=3)


def epoch(trial, number, begin, end, *devices):
    members = tuple((device, 0) for device in devices)
    where = {"device": devices[0], "slot": 0, "members": members if len(members) > 1 else ()}
    return EpochRow(0, trial, number, 0.0, {}, "h", "s", end - begin, fence=1, at=end, **where)


def trial(name, created=0.0):
    return SimpleNamespace(id=name, created_at=created)


def used(plan, epochs, end, created=(), **more):
    names = sorted({row.trial for row in epochs})
    trials = [trial(name, dict(created).get(name, 0.0)) for name in names]
    found = usage(SimpleNamespace(created_at=0.0, plan=plan), trials, epochs, end, **more)
    together = found.trained + found.others + sum(found.idle.values())
    assert together == pytest.approx(found.total), "not all time has a cause"
    return found


def test_before_the_first_epoch_it_is_start_up_and_in_between_the_plan():
    found = used(FULL, [epoch("a", 1, 2, 4, "d0"), epoch("a", 2, 5, 7, "d0")], 7.0)
    assert found.idle == dict.fromkeys(CAUSES, 0.0) | {"start-up": 2.0, "plan": 1.0}
    assert found.share == pytest.approx(4 / 7)
    assert found.over_bound == pytest.approx(5 / 4)


def test_a_rung_that_waits_for_its_last_trial_is_a_barrier():
    rows = [
        epoch("a", 1, 0, 1, "d0"),
        epoch("b", 1, 0, 5, "d1"),
        epoch("a", 2, 5, 6, "d0"),
        epoch("a", 3, 6, 7, "d0"),
    ]
    found = used(HALVING, rows, 7.0)
    assert found.idle["barrier"] == pytest.approx(4.0)
    assert found.idle["no work"] == pytest.approx(2.0)
    # Rung one: 6 s of work, the longest 5 s (bound 5); rung two: 2 s that one trial takes.
    assert found.over_bound == pytest.approx(7 / 7)


def test_a_trial_that_comes_at_another_width_was_resized():
    rows = [epoch("a", 1, 0, 2, "d0"), epoch("a", 2, 3, 4, "d0", "d1")]
    found = used(FULL, rows, 4.0)
    assert found.idle["resize"] == pytest.approx(1.0 + 3.0)


def test_the_bound_counts_a_slot_while_it_is_there():
    rows = [epoch("a", k, k - 1, k, "d0") for k in (1, 2, 3, 4)]
    rows += [epoch("b", k, k - 1, k, "d1") for k in (1, 2)]
    rows += [epoch("b", k, k + 1, k + 2, "d0") for k in (3, 4)]
    assert used(FULL, rows, 6.0).over_bound == pytest.approx(6 / 4)
    for state in ("draining", "drained", "left", "held"):
        gone = SimpleNamespace(device=SimpleNamespace(name="d1", seats=1), state=state, at=1.5)
        # It ended its second epoch: 2 s of d1 and 6 s of d0 are the 8 s that there were to do.
        found = used(FULL, rows, 6.0, devices=[gone])
        assert found.over_bound == pytest.approx(6 / 6, rel=2e-3)
        assert found.idle["device"] == pytest.approx(4.0)
    gone.at = 7.0
    assert used(FULL, rows, 6.0, devices=[gone]).over_bound == pytest.approx(6 / 4)


def test_what_other_studies_had_is_not_idle_and_a_device_that_left_is():
    rows = [epoch("a", 1, 0, 2, "d0"), epoch("b", 1, 0, 3, "d1")]
    gone = SimpleNamespace(device=SimpleNamespace(name="d0", seats=1), state="left", at=6.0)
    others = [epoch("x", 1, 2, 5, "d0")]
    found = used(FULL, rows, 8.0, others=others, devices=[gone])
    assert found.others == pytest.approx(3.0)
    assert found.idle["device"] == pytest.approx(2.0)
    assert found.idle["no work"] == pytest.approx(1.0 + 5.0)
    assert words(found) == (
        "2 slots: 19 % used by other studies; 39 % of the rest was training;"
        " idle: no work 46 %, device 15 %; 1.00 times the bound of having the slots alone,"
        " which is the least time in which these slots could train these epochs"
    )
