"""``benchmarks.limits``: a few studies, as its figures are made of many."""

from __future__ import annotations

from types import SimpleNamespace

import penstock
import pytest

from benchmarks.limits import figures as limits
from benchmarks.limits import foretold, live
from benchmarks.limits.figures import figures_of

pytestmark = pytest.mark.extension("limits", "simulation")


def test_no_trial_begins_an_epoch_beyond_a_limit():
    figures = figures_of([f"test {number}" for number in range(4)])
    assert figures["runs_with_an_epoch_under_way"] > 0
    assert figures["overshoot_epochs.max"] <= 1
    assert figures["overshoot_epochs.unheard.max"] <= 1
    assert figures.keys() >= {f"overshoot_epochs.{name}.stop.max" for name in limits.LIMITS}


def test_an_epoch_that_ends_a_moment_after_the_limit_counts_though_clocks_count_since_1970(
    monkeypatch,
):
    begin = 1.79e9
    monkeypatch.setattr(limits, "passed", lambda done, spec: (begin + 5.0, "s-3"))
    ends = [("s-1", 4.9), ("s-1", 5.01), ("s-2", 5.0), ("s-3", 5.2), ("s-3", 6.0)]
    rows = [SimpleNamespace(trial=trial, at=begin + at) for trial, at in ends]
    assert limits.overshoots(SimpleNamespace(epochs=rows), None, begin) == [1]


@pytest.mark.integration
def test_real_studies_reach_their_limits_and_their_ends_are_foretold(monkeypatch):
    monkeypatch.setattr(live, "TRIALS", 6)
    monkeypatch.setattr(live, "STRATEGIES", (penstock.FullBudget(6),))
    figures = live.live_figures(["test"])
    assert figures["live.runs"] == 4
    assert figures["live.trials_with_an_epoch_under_way"] > 0
    assert figures["live.overshoot_epochs.max"] == 1
    assert figures["live.deadline.missed"] + figures["live.deadline.met"] == foretold.DEADLINES
    assert figures["live.deadline.error.median"] > 0.0
