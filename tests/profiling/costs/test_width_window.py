"""Width windows: which widths are measured, for how long, and what the cost table makes of them."""

from __future__ import annotations

import math
from functools import partial

import pytest
from penstock.profiling.costs.segment_costs import SegmentStart
from penstock.profiling.costs.table import FIRST_RESIZE, CostTable
from penstock.profiling.costs.width_window import (
    HOPELESS,
    MEETING,
    MIN_STEPS,
    PATIENCE,
    STEPS,
    WidthWindow,
    has_gain,
    widths_up_to,
)


def measured(widest, step_seconds, limit=math.inf, meeting=0.0):
    """A window that measured all it wanted to: the widths in their order, and the seconds spent.

    ``step_seconds`` is by width; ``limit`` is in steps on one device.
    """
    window = WidthWindow(widths_up_to(widest), math.inf)
    for width in window.remaining():
        if width == 2:
            window.spent += meeting
        seconds = step_seconds(width)
        window.spent += seconds if window.is_hopeless(seconds) else STEPS * seconds
        window.found[width] = seconds
        if width == 1:
            window.limit = limit * step_seconds(1)
    return list(window.found), window.spent


def scaling(width):
    return 1.0 / width


def flat(width):
    return 1.0


def test_widths_are_doubled_then_come_the_widest_and_those_between():
    assert widths_up_to(1) == (1,)
    assert widths_up_to(2) == (1, 2)
    assert widths_up_to(3) == (1, 2, 3)
    assert widths_up_to(8) == (1, 2, 4, 8, 3, 6)
    assert widths_up_to(11) == (1, 2, 4, 8, 11, 3, 6)
    for widest in range(1, 40):
        widths = widths_up_to(widest)
        assert (widths[0], max(widths)) == (1, widest)
        assert len({*widths}) == len(widths)


def test_a_curve_that_falls_is_measured_to_its_end_where_there_is_time():
    assert measured(16, scaling)[0] == [*widths_up_to(16)]


def test_a_flat_curve_is_given_up_after_so_many_widths_without_a_gain():
    widths, spent = measured(64, flat, limit=50)
    assert widths == [1, 2, 4][: 1 + PATIENCE]
    assert spent == STEPS * (1 + PATIENCE)


def test_one_width_without_a_gain_does_not_end_it():
    """As where two members are on one node and four are not, or the other way about."""
    widths, _ = measured(8, {1: 1.0, 2: 1.1, 4: 0.5, 8: 0.3, 3: 0.8, 6: 0.4}.get, limit=50)
    assert widths[:4] == [1, 2, 4, 8]


def test_it_goes_on_without_a_gain_while_that_costs_next_to_nothing():
    assert measured(64, flat, limit=1000)[0] == [*widths_up_to(64)]


def test_a_width_between_is_left_out_where_its_neighbours_promise_nothing():
    """Four are no faster than two, so three are not measured; eight are, so six may be."""
    curve = {1: 1.0, 2: 0.5, 4: 0.5, 8: 0.25, 3: 0.4, 6: 0.3}.get
    assert measured(8, curve, limit=20)[0] == [1, 2, 4, 8, 6]


def jagged(width):
    return {2: 20.0}.get(width, 1.0 / width)


def test_one_step_says_enough_of_a_width_that_takes_many_times_as_long():
    """Else the steps at two devices would use all of it up, and nobody would look at four."""
    widths, spent = measured(4, jagged, limit=30)
    assert widths == [1, 2, 4]
    assert spent == STEPS + 20.0 + STEPS / 4


def test_a_slower_width_halves_what_the_window_may_take():
    """Of a tenth of a trial's work it takes little more than a half to find that two are slower."""
    slower = {1: 1.0, 2: 2.6, 4: 2.7, 3: 2.6}.get
    widths, spent = measured(4, slower, limit=20)
    assert widths == [1, 2]
    assert spent == STEPS * 3.6 <= 0.55 * 20
    assert measured(4, slower, limit=40)[0] == [1, 2, 4]


def test_further_steps_follow_a_long_first_one_while_they_are_cheap():
    """A first step at a width may have costs that no later one has."""
    window = WidthWindow((1, 2), math.inf, found={1: 1.0})
    window.limit = 400.0
    assert not window.is_hopeless(20.0)
    window.limit = 390.0
    assert window.is_hopeless(20.0)
    assert not window.is_hopeless(HOPELESS)


def test_members_may_take_a_part_of_the_limit_to_meet_and_no_more_than_is_left():
    """If meeting takes longer, the trial has waited for nothing."""
    window = WidthWindow((1, 2), math.inf)
    assert window.meeting_seconds() == math.inf
    window.found, window.limit, window.spent = {1: 1.0}, 100.0, 3.0
    assert window.meeting_seconds() == MEETING * 100.0
    window.spent = 90.0
    assert window.meeting_seconds() == 10.0
    window.spent = 101.0
    assert window.meeting_seconds() == 0.0


def test_two_hopeless_widths_in_a_row_end_it():
    curve = {2: 4.0, 4: 5.0}
    widths, spent = measured(64, lambda width: curve.get(width, 1.0), limit=50)
    assert widths == [1, 2, 4]
    assert spent == STEPS + 9.0


@pytest.mark.parametrize("limit", [0, MIN_STEPS - 1, MIN_STEPS, 6, 9, 12, 20, 40])
@pytest.mark.parametrize("curve", [flat, scaling, lambda width: width**0.5])
@pytest.mark.parametrize("meeting", [0.0, 3.0, 30.0])
def test_no_more_is_begun_than_ends_within_the_limit_if_it_is_twice_as_fast(limit, curve, meeting):
    widths, spent = measured(32, curve, limit, meeting)
    if len(widths) > 1:
        *before, last = widths
        began = spent - STEPS * curve(last) - (meeting if last == 2 else 0.0)
        assert began + STEPS * max(map(curve, before)) / 2 <= limit + 1e-9
    assert len(widths) == 1 or limit >= MIN_STEPS
    assert len(widths) <= 2 or meeting < limit


def test_a_second_width_is_begun_as_soon_as_there_is_time_for_it():
    assert measured(2, flat, limit=MIN_STEPS)[0] == [1, 2]
    assert measured(2, flat, limit=MIN_STEPS - 1)[0] == [1]


def test_without_the_first_width_there_is_nothing_to_compare_with():
    """If a width cannot be measured, no further width is asked for."""
    window = WidthWindow((1, 2, 4), math.inf)
    assert list(window.remaining()) == [1]
    window.found[1] = 1.0
    asked = list(window.remaining())
    assert asked == [1, 2], "two was not found, so four is not asked for"


def test_a_gain_is_one_over_one_device_from_five_percent_on():
    assert not has_gain({1: 1.0})
    assert not has_gain({1: 1.0, 2: 0.96, 4: 1.2})
    assert has_gain({1: 1.0, 2: 0.96, 4: 0.95})


def window(costs, steps, per_epoch=100, meeting=0.0, met=True, trial="t"):
    costs.observe_window("s", trial, steps, per_epoch, meeting=meeting, met=met)


def seconds(costs, *widths, trial="t"):
    return [costs.seconds_at("s", trial, width) for width in widths]


def test_before_the_first_epoch_an_epoch_is_taken_for_its_steps():
    costs = CostTable()
    window(costs, {1: 0.1, 2: 0.06, 4: 0.04})
    assert seconds(costs, 1, 2, 4) == pytest.approx([10.0, 6.0, 4.0])
    assert costs.own("s", "t").last == 1
    assert costs.speeds("s") == ((1, 10.0), (2, 6.0), (4, 4.0))


def test_a_window_says_what_a_width_takes_beside_the_one_device_that_plans_are_made_with():
    """Plans go on with an estimate until it has moved by a quarter."""
    costs = CostTable()
    costs.observe_epoch("s", "t", 10.0, 1)
    for _ in range(4):
        costs.observe_epoch("s", "t", 8.5, 1)
    window(costs, {1: 0.1, 2: 0.106})
    assert dict(costs.expected("s", "t", 2).shape)[2] == pytest.approx(1.06)


def test_a_trial_that_is_slower_when_wider_promises_others_nothing():
    """One trial's features must not explain its curve: they would promise the opposite."""
    costs = CostTable()
    for number in range(13):
        features = (-1.5 if number else 2.0,)
        costs.observe_epoch("s", f"t{number}", 100.0, 1, partial(tuple, features))
    steps = {1: 0.04, 2: 0.25, 4: 0.26, 8: 0.32}
    costs.observe_window("s", "t0", steps, 100, (2.0,), meeting=0.0, met=True)
    shape = costs.expected("s", "t1", 8, (-1.5,)).shape
    assert min(factor for _, factor in shape) == 1.0


def test_the_first_epoch_corrects_what_steps_foretold_at_all_widths():
    """Evaluation and checkpoints make an epoch half as long again as its steps."""
    costs = CostTable()
    window(costs, {1: 0.1, 2: 0.06, 4: 0.04})
    assert costs.observe_epoch("s", "t", 6.0, 4), "that is more than was foretold"
    assert seconds(costs, 1, 2, 4) == pytest.approx([15.0, 9.0, 6.0])
    # What an epoch was measured to take is not moved by another width's.
    costs.observe_epoch("s", "t", 20.0, 1)
    assert seconds(costs, 1, 4) == pytest.approx([20.0, 6.0])


def test_after_an_epoch_widths_keep_their_ratio_to_it():
    costs = CostTable()
    costs.observe_epoch("s", "t", 30.0, 1)
    window(costs, {1: 0.1, 2: 0.06})
    assert seconds(costs, 1, 2) == pytest.approx([30.0, 18.0]), "epochs count, not their steps"
    costs.observe_epoch("s", "t", 130.0, 1)
    assert seconds(costs, 1, 2) == pytest.approx([60.0, 36.0])
    assert costs.own("s", "t").means == pytest.approx({1: 60.0, 2: 36.0})


def test_the_ratio_is_to_the_width_of_the_newest_epoch_that_the_window_measured():
    costs = CostTable()
    costs.observe_epoch("s", "t", 30.0, 1)
    costs.observe_epoch("s", "t", 12.0, 2)
    window(costs, {1: 0.1, 2: 0.06, 4: 0.03})
    assert seconds(costs, 1, 2, 4) == pytest.approx([30.0, 12.0, 6.0])


def test_a_second_window_replaces_what_steps_foretold_and_no_epoch():
    costs = CostTable()
    costs.observe_epoch("s", "t", 10.0, 1)
    window(costs, {1: 0.1, 2: 0.05})
    window(costs, {1: 0.1, 2: 0.08, 4: 0.04})
    assert seconds(costs, 1, 2, 4) == pytest.approx([10.0, 8.0, 4.0])


def test_widths_that_a_window_measured_are_promised_to_other_trials_of_the_study():
    costs = CostTable()
    window(costs, {1: 0.1, 2: 0.05})
    costs.observe_epoch("s", "other", 20.0, 1)
    [alone, both, four] = seconds(costs, 1, 2, 4, trial="other")
    assert alone == 20.0
    assert both < 14.0
    assert four == both, "four were not measured"


def test_a_resize_takes_what_the_members_took_to_meet_until_one_was_measured():
    costs = CostTable()
    assert costs.resize == FIRST_RESIZE
    window(costs, {1: 0.1, 2: 0.05}, meeting=0.02)
    assert costs.resize == 0.02
    window(costs, {1: 0.1, 2: 0.05}, meeting=3.0, trial="u")
    assert costs.resize == 3.0
    window(costs, {1: 0.1}, meeting=0.0, met=False)
    assert costs.resize == 3.0, "they had not begun to meet"
    costs.observe_segment("s", 1.0, 0.0, 1, start=SegmentStart.NEXT, resized=True)
    window(costs, {1: 0.1, 2: 0.05}, meeting=9.0)
    assert costs.resize == pytest.approx(1.0, abs=0.1)


def test_a_meeting_in_vain_says_that_a_resize_may_take_twice_as_long():
    costs = CostTable()
    window(costs, {1: 0.1}, meeting=2.0, met=False)
    assert costs.resize == 4.0
    window(costs, {1: 0.1}, meeting=1.0, met=False)
    assert costs.resize == 4.0


def test_a_window_that_measured_nothing_teaches_nothing():
    costs = CostTable()
    window(costs, {})
    assert costs == CostTable()
