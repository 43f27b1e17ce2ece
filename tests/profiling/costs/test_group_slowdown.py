"""Ratios of an epoch's seconds per trial in a fused group to those of a trial alone."""

from __future__ import annotations

import pytest
from penstock.profiling.costs.group_slowdown import SURE, GroupSlowdown
from penstock.profiling.costs.table import CostTable


def test_nothing_is_gained_where_nothing_is_known():
    slowdown = GroupSlowdown()
    assert [slowdown.ratio(n) for n in (1, 2, 64)] == [1.0, 1.0, 1.0]
    assert slowdown.least == 1.0


def test_between_what_was_measured_a_step_has_a_common_part_and_one_of_each_trial():
    # Seconds of a step of n trials: 0.1 n + 0.9, so 0.1 + 0.9 / n of each.
    slowdown = GroupSlowdown({4: 0.1 + 0.9 / 4, 32: 0.1 + 0.9 / 32})
    assert slowdown.ratio(0) == 1.0, "of a trial that cannot be trained with others"
    for n in (1, 2, 3, 4, 5, 8, 31, 32):
        assert slowdown.ratio(n) == pytest.approx(0.1 + 0.9 / n)


def test_beyond_the_most_that_were_measured_nothing_more_is_promised():
    slowdown = GroupSlowdown({4: 0.5})
    assert slowdown.ratio(64) == 0.5
    assert slowdown.least == 0.5


@pytest.mark.parametrize(
    ("own", "pay"), [(0.0, 64), (0.02, 64), (0.2, 32), (0.3, 16), (0.6, 4), (0.9, 2), (1.2, 2)]
)
def test_more_pay_as_long_as_twice_as_many_are_faster(own, pay):
    """Of each trial a step takes ``own + (1 - own) / n``; twice as many shall save a tenth."""
    slowdown = GroupSlowdown()
    while slowdown.worthwhile() not in slowdown.ratios and slowdown.worthwhile() < 64:
        n = slowdown.worthwhile()
        slowdown.observe(n, own + (1 - own) / n)
    assert slowdown.worthwhile() == pay


def test_one_bad_measurement_does_not_keep_them_unfused_for_ever():
    slowdown = GroupSlowdown()
    slowdown.observe(2, 1.3)
    assert slowdown.worthwhile() == 2
    for _ in range(20):
        slowdown.observe(2, 0.55)
    assert slowdown.worthwhile() == 4


def test_none_are_asked_for_once_it_is_sure_that_none_pay():
    slowdown = GroupSlowdown()
    for n in range(1, 20):
        slowdown.observe(2, 0.96)
        assert slowdown.worthwhile() == (2 if n < 8 else 1)


@pytest.mark.parametrize(
    ("ratios", "pay"),
    [
        ({2: 1.1}, 1),
        ({2: 1.0, 8: 0.9}, 1),
        ({2: 0.97, 8: 0.8}, 1),
        ({2: 0.97, 8: 0.32}, 16),  # two are no faster, and eight are
        ({2: 0.8}, 4),
        ({2: 0.6, 8: 0.35}, 16),
    ],
)
def test_what_was_probed_says_how_many_pay(ratios, pay):
    slowdown = GroupSlowdown()
    for size, ratio in ratios.items():
        slowdown.observe_probe(size, ratio)
    assert slowdown.worthwhile() == pay


def test_epochs_of_groups_are_believed_once_there_are_enough():
    slowdown = GroupSlowdown()
    slowdown.observe_probe(2, 0.6)
    slowdown.observe_probe(8, 0.3)
    for n in range(1, 20):
        slowdown.observe(4, 1.1)
        assert (slowdown.worthwhile() > 1) == (n < SURE)
    assert slowdown.ratio(4) == pytest.approx(1.1)


def test_more_are_tried_where_epochs_of_as_many_as_are_allowed_pay():
    slowdown = GroupSlowdown()
    slowdown.observe_probe(2, 0.6)
    slowdown.observe_probe(8, 0.15)
    assert slowdown.worthwhile() == 16
    for _ in range(SURE):
        slowdown.observe(16, 0.075)
    assert slowdown.worthwhile() == 32


def test_before_epochs_of_groups_what_was_probed_is_expected():
    slowdown = GroupSlowdown()
    slowdown.observe_probe(2, 0.6)
    assert slowdown.ratio(2) == 0.6
    assert slowdown.ratio(1) == 1.0
    assert slowdown.least == 1.0, "that is what epochs have shown"


def test_a_new_measurement_moves_the_ratio_and_does_not_replace_it():
    table = CostTable()
    table.observe_group("a", 8, 0.2)
    table.observe_group("a", 8, 0.4)
    assert 0.2 < table.group_slowdown("a", 8) < 0.4
    assert table.group_slowdown("b", 8) == 1.0
    table.forget_study("a")
    assert table.group_slowdown("a", 8) == 1.0
