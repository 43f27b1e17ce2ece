"""The cost table's expectations of trials: at measured widths, and at others."""

from __future__ import annotations

import math
from functools import partial
from random import Random

import pytest
from penstock.profiling.costs.segment_costs import (
    FIRST_OVERHEAD,
    FIRST_RESUME,
    PRIOR_PREEMPTIONS,
    PRIOR_SECONDS,
    PreemptionTable,
    SegmentStart,
)
from penstock.profiling.costs.table import CHANGE_FACTOR, CostTable


def taught(*epochs):
    """A table that saw (trial, width, seconds)."""
    costs = CostTable()
    for trial, width, seconds in epochs:
        costs.observe_epoch("s", trial, seconds, width)
    return costs


def test_nothing_is_expected_of_a_study_without_a_measured_epoch():
    level, shape, deviation, hope, likely = CostTable().expected("s", "t", 4)
    assert level is None
    assert deviation == math.inf
    assert [width for width, _ in shape] == [width for width, _ in hope] == [1, 2, 3, 4]
    assert all(low < high for (_, low), (_, high) in zip(hope[1:], shape[1:], strict=True))
    assert shape == ((1, 1.0), (2, 1.0), (3, 1.0), (4, 1.0)), "no gain is sure"
    assert likely[3][1] < 0.9, "trainings mostly scale"


def test_an_epoch_that_took_no_time_does_no_harm():
    costs = CostTable()
    assert costs.observe_epoch("s", "t", 0.0, 1)
    costs.observe_epoch("s", "t", 0.0, 1)
    level, shape, *_ = costs.expected("s", "t", 2)
    assert level > 0
    assert all(factor > 0 for _, factor in shape)


def test_a_trial_that_was_not_run_is_expected_as_its_study_and_one_that_was_as_itself():
    costs = taught(("a", 1, 2.0), ("b", 1, 8.0))
    assert costs.expected("s", "b", 1).level == pytest.approx(8.0)
    assert costs.expected("s", "new", 1).level == pytest.approx(4.0, rel=0.01)
    own, new = (costs.expected("s", trial, 1).deviation for trial in ("b", "new"))
    assert own < 0.1 < new


def test_measured_widths_count_as_they_were_measured_and_tell_of_the_trial_on_one_device():
    costs = taught(("a", 1, 8.0), ("a", 2, 5.0))
    level, shape, *_ = costs.expected("s", "a", 3)
    assert level == pytest.approx(8.0)
    assert dict(shape)[2] == pytest.approx(5 / 8)
    assert dict(shape)[3] > 0.3
    assert costs.seconds_at("s", "a", 2) == pytest.approx(5.0)


def test_hope_and_caution_are_one_where_a_trial_was_measured_and_apart_elsewhere():
    costs = taught(("a", 2, 5.0))
    for known in ({2}, {2, 4}):
        _, shape, _, hope, _ = costs.expected("s", "a", 5)
        same = {w for (w, slow), (_, fast) in zip(shape, hope, strict=True) if slow == fast}
        assert same == {1, *known}
        costs.observe_epoch("s", "a", 3.0, 4)


def test_the_curve_of_a_trial_that_scales_badly_is_its_own():
    """Nine trials twice as fast on two devices, one that is not: each is expected as it is."""
    costs = taught(*[(f"t{k}", width, 8.0 / width) for k in range(8) for width in (1, 2, 4)])
    for width in (1, 2):
        costs.observe_epoch("s", "t8", 8.0 / width, width)
    for width, seconds in ((1, 8.0), (2, 8.4)):
        costs.observe_epoch("s", "bad", seconds, width)
    bad, good = (dict(costs.expected("s", name, 4).shape) for name in ("bad", "t8"))
    assert bad[2] == pytest.approx(8.4 / 8)
    assert min(bad.values()) == 1.0, "its own curve does not fall any more"
    assert good[2] == good[3] == pytest.approx(1 / 2)
    assert good[4] < 0.35, "others were measured there"


def test_no_gain_is_promised_at_widths_that_nobody_measured():
    costs = taught(("a", 1, 8.0), ("a", 2, 4.0), ("b", 1, 6.0))
    for trial in ("a", "b", "new"):
        shape, hope = (dict(costs.expected("s", trial, 4)[place]) for place in (1, 3))
        assert shape[2] < 0.7
        assert shape[3] == shape[4] == shape[2], trial
        assert hope[4] < hope[3] < shape[2], trial


@pytest.mark.parametrize(("seconds", "promised"), [(7.7, 1.0), (7.5, 7.5 / 8), (9.0, 9 / 8)])
def test_a_gain_is_sure_from_five_percent_on(seconds, promised):
    costs = taught(("a", 1, 8.0), ("a", 2, seconds))
    assert dict(costs.expected("s", "a", 2).shape)[2] == pytest.approx(promised)


def test_a_trial_that_was_measured_on_several_devices_only_takes_there_what_was_measured():
    costs = taught(("a", 3, 5.0))
    assert costs.seconds_at("s", "a", 3) == pytest.approx(5.0)
    shape = dict(costs.expected("s", "a", 4).shape)
    assert shape[2] == 1.0 > shape[3] <= shape[4]


def test_what_a_study_was_seen_to_gain_is_expected_of_a_trial_that_ran_at_one_width():
    scaling = taught(*[(f"t{k}", width, 8.0 / width) for k in range(5) for width in (1, 2, 4)])
    stuck = taught(*[(f"t{k}", width, 8.0) for k in range(5) for width in (1, 2, 4)])
    for costs in (scaling, stuck):
        costs.observe_epoch("s", "one", 20.0, 2)
    assert dict(scaling.expected("s", "one", 4).shape)[4] < 0.35
    assert dict(stuck.expected("s", "one", 4).shape)[4] > 0.8
    assert scaling.seconds_at("s", "one", 2) == pytest.approx(20.0)


def test_wide_trials_that_are_long_do_not_make_width_look_slow():
    """The long ones run wide: only trials that ran at several widths can tell what width does."""
    costs = taught(*[(f"short{k}", 1, 4.0) for k in range(5)])
    for k in range(5):
        costs.observe_epoch("s", f"long{k}", 40.0, 1)
        costs.observe_epoch("s", f"long{k}", 10.0, 4)
    assert dict(costs.expected("s", "short0", 4).shape)[4] < 0.4


def test_only_what_moves_an_estimate_asks_for_a_new_plan():
    costs = CostTable()
    assert costs.observe_epoch("s", "a", 1.0, 1)
    assert not costs.observe_epoch("s", "a", 1.1, 1)
    assert costs.observe_epoch("s", "a", 1.0, 2)
    assert costs.observe_epoch("s", "a", 1.0 + 4 * (CHANGE_FACTOR - 1), 1)
    assert not costs.observe_epoch("s", "as expected", costs.expected("s", "b", 1).level, 1)


def test_the_first_epoch_of_a_study_at_a_width_asks_for_a_new_plan_even_if_it_took_as_expected():
    costs = taught(("a", 1, 5.0))
    assert costs.expected("s", "a", 2).shape == ((1, 1.0), (2, 1.0))
    assert costs.observe_epoch("s", "a", 5.0, 2), "a policy that tries widths has its answer"
    assert not costs.observe_epoch("s", "a", 5.0, 2)
    assert not costs.observe_epoch("s", "b", 5.0, 2)


def test_hyperparameters_that_matter_foretell_trials_that_have_not_run():
    """Batch size and a layer's width, as features from -1 to 1; the noise is 10 %."""
    rng = Random(7)

    def seconds(batch, layer, width):
        compute = 20.0 * math.exp(0.9 * layer) * (1.0 + 0.5 * math.exp(-0.8 * batch))
        return (compute / width**0.8) * math.exp(rng.gauss(0.0, 0.1))

    drawn = [(rng.uniform(-1, 1), rng.uniform(-1, 1), rng.uniform(-1, 1)) for _ in range(60)]
    costs = CostTable()
    for number, features in enumerate(drawn[:20]):
        for width in (1, 2) if number < 5 else (1,):
            taken = seconds(*features[:2], width)
            costs.observe_epoch("s", f"t{number}", taken, width, partial(tuple, features))
    mean = math.exp(sum(math.log(own.means[1]) for own in costs.studies["s"].trials.values()) / 20)
    ours, means, inside = 0.0, 0.0, 0
    for number, features in enumerate(drawn[20:]):
        truth = math.log(seconds(*features[:2], 1))
        found = costs.expected("s", f"new{number}", 1, features)
        ours += abs(math.log(found.level) - truth)
        means += abs(math.log(mean) - truth)
        inside += abs(math.log(found.level) - truth) < 1.645 * found.deviation
    assert ours < 0.4 * means
    assert 32 <= inside <= 40  # of 40, 90 % of which are expected to be


def test_what_a_resize_takes_is_learned_from_segments_that_began_with_one():
    costs = CostTable(segment_overhead=0.1, resize=0.0)
    segment(costs, 5.0, resized=True)
    assert costs.resize == pytest.approx(4.9)
    segment(costs, 7.0, resized=True)
    assert costs.resize == pytest.approx(0.7 * 4.9 + 0.3 * 6.9)
    assert costs.segment_overhead == 0.1
    segment(costs, 0.2)
    assert costs.segment_overhead == pytest.approx(0.7 * 0.1 + 0.3 * 0.2)


def segment(costs, fixed, between=0.0, epochs=1, *, start=SegmentStart.NEXT, resized=False):
    costs.observe_segment("s", fixed, between, epochs, start=start, resized=resized)


def test_a_start_up_and_the_first_segment_of_a_trial_are_no_overhead_of_segments():
    costs = CostTable()
    segment(costs, 1.1)
    segment(costs, 0.3, start=SegmentStart.NEW)
    assert costs.segment_overhead == FIRST_OVERHEAD
    assert costs.resume("s", SegmentStart.TRAINER) == FIRST_RESUME[SegmentStart.TRAINER]


def test_what_every_epoch_costs_is_no_overhead_of_segments_however_long_they_are():
    """Else a longer segment would seem to have more overhead, and the next one be longer still."""
    costs = CostTable()
    for epochs in (1, 10, 100, 1000, 10, 1):
        for _ in range(30):
            segment(costs, 0.008 + 0.002, 0.002 * (epochs - 1), epochs)
    assert costs.segment_overhead == pytest.approx(0.008, rel=1e-3)


def test_the_price_of_a_resume_is_what_it_costs_beyond_the_overhead_by_where_the_state_was():
    costs = CostTable(segment_overhead=0.01)
    segment(costs, 0.013, start=SegmentStart.TRAINER)
    segment(costs, 2.51, start=SegmentStart.STORE)
    assert costs.resume("s", SegmentStart.TRAINER) == pytest.approx(0.003)
    assert costs.resume("s", SegmentStart.STORE) == pytest.approx(2.5)
    segment(costs, 0.0, start=SegmentStart.TRAINER)
    assert costs.resume("s", SegmentStart.TRAINER) == pytest.approx(0.7 * 0.003)
    assert costs.resume("other", SegmentStart.STORE) == FIRST_RESUME[SegmentStart.STORE]
    assert costs.segment_overhead == 0.01


def test_a_slot_is_preempted_as_often_as_it_was_seen_to_be_lately():
    table = PreemptionTable()
    assert table.interval == PRIOR_SECONDS / PRIOR_PREEMPTIONS
    for _ in range(1000):
        table.observe_work(2.0)
    assert table.interval > 1000.0
    for _ in range(1000):
        table.observe_work(2.0)
        table.observe_preemption()
    busy = table.interval
    assert 2.0 <= busy < 5.0
    for _ in range(5000):
        table.observe_work(2.0)
    assert table.interval > 50 * busy
