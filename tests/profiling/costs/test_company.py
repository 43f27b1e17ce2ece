"""Ratios of an epoch's seconds per trial in a batch to those of a trial alone."""

from __future__ import annotations

import pytest
from penstock.profiling.costs.company import SURE, Company
from penstock.profiling.costs.table import CostTable


def test_nothing_is_gained_where_nothing_is_known():
    company = Company()
    assert [company.ratio(n) for n in (1, 2, 64)] == [1.0, 1.0, 1.0]
    assert company.least == 1.0


def test_between_what_was_measured_a_step_has_a_common_part_and_one_of_each_trial():
    # Seconds of a step of n trials: 0.1 n + 0.9, so 0.1 + 0.9 / n of each.
    company = Company({4: 0.1 + 0.9 / 4, 32: 0.1 + 0.9 / 32})
    assert company.ratio(0) == 1.0, "of a trial that cannot be trained with others"
    for n in (1, 2, 3, 4, 5, 8, 31, 32):
        assert company.ratio(n) == pytest.approx(0.1 + 0.9 / n)


def test_beyond_the_most_that_were_measured_nothing_more_is_promised():
    company = Company({4: 0.5})
    assert company.ratio(64) == 0.5
    assert company.least == 0.5


@pytest.mark.parametrize(
    ("own", "pay"), [(0.0, 64), (0.02, 64), (0.2, 32), (0.3, 16), (0.6, 4), (0.9, 2), (1.2, 2)]
)
def test_more_pay_as_long_as_twice_as_many_are_faster(own, pay):
    """Of each trial a step takes ``own + (1 - own) / n``; twice as many shall save a tenth."""
    company = Company()
    while company.worthwhile() not in company.ratios and company.worthwhile() < 64:
        n = company.worthwhile()
        company.observe(n, own + (1 - own) / n)
    assert company.worthwhile() == pay


def test_one_bad_measurement_does_not_keep_them_apart_for_ever():
    company = Company()
    company.observe(2, 1.3)
    assert company.worthwhile() == 2
    for _ in range(20):
        company.observe(2, 0.55)
    assert company.worthwhile() == 4


def test_none_are_asked_for_once_it_is_sure_that_none_pay():
    company = Company()
    for n in range(1, 20):
        company.observe(2, 0.96)
        assert company.worthwhile() == (2 if n < 8 else 1)


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
def test_what_was_rehearsed_says_how_many_pay(ratios, pay):
    company = Company()
    for together, ratio in ratios.items():
        company.rehearse(together, ratio)
    assert company.worthwhile() == pay


def test_epochs_together_are_believed_once_there_are_enough():
    company = Company()
    company.rehearse(2, 0.6)
    company.rehearse(8, 0.3)
    for n in range(1, 20):
        company.observe(4, 1.1)
        assert (company.worthwhile() > 1) == (n < SURE)
    assert company.ratio(4) == pytest.approx(1.1)


def test_more_are_tried_where_epochs_of_as_many_as_are_allowed_pay():
    company = Company()
    company.rehearse(2, 0.6)
    company.rehearse(8, 0.15)
    assert company.worthwhile() == 16
    for _ in range(SURE):
        company.observe(16, 0.075)
    assert company.worthwhile() == 32


def test_before_epochs_together_what_was_rehearsed_is_expected():
    company = Company()
    company.rehearse(2, 0.6)
    assert company.ratio(2) == 0.6
    assert company.ratio(1) == 1.0
    assert company.least == 1.0, "that is what epochs have shown"


def test_a_new_measurement_moves_the_ratio_and_does_not_replace_it():
    table = CostTable()
    table.observe_company("a", 8, 0.2)
    table.observe_company("a", 8, 0.4)
    assert 0.2 < table.company_ratio("a", 8) < 0.4
    assert table.company_ratio("b", 8) == 1.0
    table.forget_study("a")
    assert table.company_ratio("a", 8) == 1.0
