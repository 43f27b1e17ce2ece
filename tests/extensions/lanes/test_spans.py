"""Turns in a shared lane are laid out so that none overlap, each before its epoch's end."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from random import Random

import pytest
from penstock.app.show.views.delays import epoch_spans


@dataclass(frozen=True)
class Row:
    at: float
    seconds: float
    slot: int = 0
    began: float | None = 0.0
    device: str = "d"


def test_an_epoch_that_was_interrupted_is_seen_around_the_one_that_interrupted_it():
    long, short = Row(90.0, 60.0), Row(50.0, 30.0, slot=1)
    assert epoch_spans([long, short], {"d": 4}) == [[(0.0, 20.0), (50.0, 90.0)], [(20.0, 50.0)]]


def test_other_lanes_and_epochs_that_had_all_of_the_time_stay_where_they_are():
    rows = [Row(10.0, 8.0), Row(10.0, 8.0, slot=2), Row(10.0, 8.0, began=None)]
    assert epoch_spans(rows, {"d": 2}) == [[(2.0, 10.0)]] * 3


def test_times_of_today_whose_floats_are_coarse_are_laid_out_too():
    now, rng = 1.764e9, Random(1)
    rows = [Row(now + rng.uniform(0.0, 60.0), rng.uniform(1e-7, 0.1), slot=1) for _ in range(500)]
    spans = epoch_spans([*rows, Row(now + 60.0, 40.0)], {"d": 4})
    assert sum(end - begin for begin, end in spans[-1]) == pytest.approx(40.0, abs=1e-4)


@pytest.mark.parametrize("seed", range(30))
def test_a_lane_never_works_for_more_than_all_of_the_time(seed):
    """Residents share a lane by random parts; what they report is laid out without overlap."""
    rng = Random(seed)
    left, rows, at = [rng.uniform(0.1, 5.0) for _ in range(4)], [], 0.0
    whole = list(left)
    while len(rows) < 200:
        turns = [rng.random() for _ in left]
        passed = min(need * sum(turns) / turn for need, turn in zip(left, turns, strict=True))
        passed = min(passed, rng.expovariate(1.0))
        at += passed
        left = [need - passed * turn / sum(turns) for need, turn in zip(left, turns, strict=True)]
        for slot, need in enumerate(left):
            if need < 1e-9:
                rows.append(Row(at, whole[slot], slot))
                left[slot] = whole[slot] = rng.uniform(0.1, 5.0)
    spans = sorted(span for each in epoch_spans(rows, {"d": 4}) for span in each)
    assert all(a[1] <= b[0] + 1e-6 for a, b in pairwise(spans))
    assert spans[0][0] >= -1e-6
    for row, own in zip(rows, epoch_spans(rows, {"d": 4}), strict=True):
        assert sum(end - begin for begin, end in own) == pytest.approx(row.seconds)
        assert own[-1][1] <= row.at
