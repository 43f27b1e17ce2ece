"""What the cost table expects of trials: at widths that were measured, and at others."""

from __future__ import annotations

import pytest
from penstock.profiling.cost import MOVED, CostTable


def test_nothing_is_expected_of_a_study_without_a_measured_epoch():
    costs = CostTable()
    assert costs.expected("s", "t", 1) == (None, ((1, 1.0),))
    level, shape = costs.expected("s", "t", 4)
    assert level is None
    assert [width for width, _ in shape] == [1, 2, 3, 4]


def test_an_epoch_that_took_no_time_does_no_harm():
    costs = CostTable()
    assert costs.saw_epoch("s", "t", 0.0, 1)
    costs.saw_epoch("s", "t", 0.0, 1)
    level, shape = costs.expected("s", "t", 2)
    assert level > 0
    assert all(factor > 0 for _, factor in shape)


def test_a_trial_that_was_not_run_is_expected_as_its_study_and_one_that_was_as_itself():
    costs = CostTable()
    costs.saw_epoch("s", "a", 2.0, 1)
    costs.saw_epoch("s", "b", 4.0, 1)
    assert costs.expected("s", "b", 1)[0] == 4.0
    assert costs.expected("s", "new", 1)[0] == pytest.approx(2.0 + 0.3 * 2.0)


def test_measured_widths_count_as_they_were_measured_and_tell_of_the_trial_on_one_device():
    costs = CostTable()
    costs.saw_epoch("s", "a", 8.0, 1)
    costs.saw_epoch("s", "a", 5.0, 2)
    level, shape = costs.expected("s", "a", 3)
    assert level == pytest.approx(8.0)
    assert dict(shape)[2] == pytest.approx(5 / 8)
    assert dict(shape)[3] > 0.3


def test_only_what_moves_an_estimate_asks_for_a_new_plan():
    costs = CostTable()
    assert costs.saw_epoch("s", "a", 1.0, 1)
    assert not costs.saw_epoch("s", "a", 1.1, 1)
    assert costs.saw_epoch("s", "a", 1.0, 2)
    assert costs.saw_epoch("s", "a", 1.0 + 4 * (MOVED - 1), 1)


def test_what_a_resize_takes_is_learned_from_segments_that_began_with_one():
    costs = CostTable(segment_overhead=0.1, resize=0.0)
    costs.saw_segment(10.0, 5.0, resized=True)
    assert costs.resize == pytest.approx(0.3 * 4.9)
    assert costs.segment_overhead == 0.1
    costs.saw_segment(5.2, 5.0, resized=False)
    assert costs.segment_overhead == pytest.approx(0.7 * 0.1 + 0.3 * 0.2)
