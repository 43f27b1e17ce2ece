"""The counts of the benchmark of failovers."""

from __future__ import annotations

from types import SimpleNamespace

from testkit.faults.failovers import gaps, recoveries
from testkit.faults.sentinels import Switch
from testkit.faults.sites import TRIALS, Outcome


def test_an_epoch_is_lost_where_a_later_one_of_its_trial_or_the_whole_trial_is():
    whole = {(trial, epoch): "bits" for trial in range(TRIALS) for epoch in range(1, 3 + trial)}

    def lost(*places):
        left = {place: bits for place, bits in whole.items() if place not in places}
        return gaps(SimpleNamespace(outcome=lambda _: Outcome(left, 0)), "study")

    assert lost() == 0
    assert lost((1, 1), (2, 2)) == 2
    assert lost((1, 3)) == 0, "no later one was accepted: it may have been stopped there"
    assert lost((0, 1), (0, 2)) == 1


def test_recovery_counts_from_the_sentinels_word_to_the_next_epoch():
    rows = [SimpleNamespace(at=at) for at in (9.0, 1.0, 4.5, 12.0)]
    switches = [Switch(4.0, 1, 2), Switch(9.0, 2, 1), Switch(20.0, 1, 2)]
    assert recoveries(switches, SimpleNamespace(epochs=lambda: rows)) == [0.5, 3.0]
