"""``benchmarks.limits``: a few studies, as its figures are made of many."""

from __future__ import annotations

from benchmarks.limits import figures_of


def test_no_trial_begins_an_epoch_beyond_a_limit():
    figures = figures_of([f"test {number}" for number in range(4)])
    assert figures["runs_with_an_epoch_under_way"] > 0
    assert figures["overshoot_epochs.max"] <= 1
