"""The chaos benchmark's judgement that nothing stood still."""

from __future__ import annotations

from penstock.app.ledger.rows import EpochRow

from testkit.faults.campaign import STANDSTILL, standstills
from testkit.faults.sites import RUNGS


def epoch(at, seconds=1.0, *, trial="s-0000", number=1, device="d"):
    return EpochRow(0, trial, number, 0.0, {}, "h", "s", seconds, device, 0, 1, at, ())


def test_a_time_without_any_epoch_counts_where_it_is_longer_than_the_limit_and_the_epoch():
    ends = [0.0, 10.0, 10.0 + STANDSTILL + 1.0, 200.0]
    judged = standstills([epoch(at, trial=f"s-{at}") for at in reversed(ends)])
    assert judged["longest_standstill_s"] == 200.0 - ends[2]
    assert judged["stuck"] == 1
    assert standstills([epoch(0.0), epoch(200.0, seconds=150.0)])["stuck"] == 0
    assert not any(standstills([]).values())


def test_a_trial_that_stands_while_another_one_trains_counts_if_a_device_is_free():
    other = [epoch(at, 10.0, trial="s-0001", number=at // 10) for at in range(10, 210, 10)]
    ours = [epoch(0.0), epoch(200.0, number=2)]
    assert standstills([*ours, *other])["stuck"] == 0, "the only device was busy"
    free = standstills([*ours, *other, epoch(0.0, trial="s-0002", device="e")])
    assert free["longest_standstill_of_a_trial_s"] == 200.0
    assert free["stuck"] == 1


def test_a_trial_that_waits_at_a_rung_does_not_stand():
    rung = min(RUNGS)
    other = [
        epoch(at, 10.0, trial="s-0001", number=at // 10, device="e") for at in range(10, 210, 10)
    ]
    ours = [epoch(0.0, number=rung), epoch(200.0, number=rung + 1)]
    assert standstills([*ours, *other])["stuck"] == 0
