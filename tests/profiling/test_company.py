"""What an epoch takes of each of several trials together, over what it takes alone."""

from __future__ import annotations

import pytest
from penstock.profiling.costs.company import Company
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


def test_a_new_measurement_moves_the_ratio_and_does_not_replace_it():
    table = CostTable()
    table.observe_company("a", 8, 0.2)
    table.observe_company("a", 8, 0.4)
    assert 0.2 < table.company_ratio("a", 8) < 0.4
    assert table.company_ratio("b", 8) == 1.0
    table.forget_study("a")
    assert table.company_ratio("a", 8) == 1.0
