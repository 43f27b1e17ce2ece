"""The throughput model by hand, and its fit to a few measured places."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from penstock.profiling.costs.fitting import NOISE, fit
from penstock.profiling.costs.hull import hull
from penstock.profiling.costs.throughput import (
    Allocation,
    Coefficients,
    Measured,
    packed_allocation,
)

KNOWN = Coefficients(
    alpha_grad=0.05,
    beta_grad=1.0,
    alpha_local=0.04,
    beta_local=0.01,
    alpha_node=0.2,
    beta_node=0.005,
    gamma=2.0,
)


def points(*measured, per_node=None):
    """Of (width, seconds)."""
    return [Measured(packed_allocation(width, per_node), seconds) for width, seconds in measured]


def of(coefficients, widths, per_node):
    return [
        Measured(place, coefficients.seconds(place))
        for place in (packed_allocation(width, per_node) for width in widths)
    ]


class TestModel:
    def test_one_device_computes_and_has_nobody_to_wait_for(self):
        assert KNOWN.seconds(Allocation(1, 1, 0.5)) == 0.05 + 0.5

    def test_without_overlap_the_parts_add_up(self):
        plain = replace(KNOWN, gamma=1.0)
        assert plain.seconds(Allocation(4, 1, 0.25)) == pytest.approx(0.05 + 0.25 + 0.04 + 2 * 0.01)

    def test_gamma_of_two_is_a_hypotenuse(self):
        model = Coefficients(3.0, 0.0, 4.0, 0.0, 4.0, 0.0, 2.0)
        assert model.seconds(Allocation(2, 1, 1.0)) == pytest.approx(5.0)

    def test_much_overlap_leaves_the_longer_part(self):
        model = Coefficients(3.0, 0.0, 4.0, 0.0, 4.0, 0.0, 1e6)
        assert model.seconds(Allocation(2, 2, 1.0)) == pytest.approx(4.0)

    def test_a_node_more_may_cost_more_than_a_device_more_gains(self):
        within, across = (KNOWN.seconds(packed_allocation(width, per_node=4)) for width in (4, 5))
        assert across > within

    def test_a_device_has_its_part_of_the_batch(self):
        assert packed_allocation(4).share == 0.25
        assert packed_allocation(5, per_node=4, batch=40) == Allocation(5, 2, 8.0)


def test_one_point_promises_little_and_knows_that_it_knows_little():
    curve = fit(points((1, 8.0))).curve(8)
    assert curve[0].seconds == pytest.approx(8.0)
    assert curve[0].deviation == NOISE
    assert all(8.0 / each.place.width < each.seconds < 8.0 for each in curve[1:])
    deviations = [each.deviation for each in curve]
    assert deviations == sorted(deviations)
    assert deviations[1] > 3 * NOISE
    assert curve[7].high() > 1.3 * curve[7].seconds


def test_a_single_wide_point_is_enough_for_a_curve():
    model = fit(points((4, 2.0)))
    assert model.curve(4)[3].seconds == pytest.approx(2.0)
    assert 2.0 < model.curve(4)[0].seconds < 8.0


def test_two_equal_points_are_one_that_is_surer():
    once, twice = (fit(points(*[(2, 3.0)] * count)) for count in (1, 2))
    assert twice.estimate(packed_allocation(2)).seconds == pytest.approx(3.0)
    assert (
        twice.estimate(packed_allocation(2)).deviation
        < once.estimate(packed_allocation(2)).deviation
    )


def test_one_of_three_that_is_far_off_is_outvoted():
    model = fit(points((1, 4.0), (1, 4.1), (1, 40.0)))
    assert model.estimate(packed_allocation(1)).seconds == pytest.approx(4.1)


def test_uncertainty_shrinks_with_what_was_measured():
    truth = of(KNOWN, (1, 2, 4, 3, 6), per_node=8)
    far = [fit(truth[:count]).estimate(packed_allocation(8, 8)).deviation for count in range(1, 6)]
    assert far == sorted(far, reverse=True)
    assert far[-1] < far[0] / 2


def test_an_estimate_beside_a_measured_width_is_surer_than_one_far_off():
    model = fit(of(KNOWN, (1, 2, 4), per_node=8))
    beside, far = (model.estimate(packed_allocation(width, 8)).deviation for width in (3, 16))
    assert NOISE < beside < far


def test_twelve_points_of_a_known_model_foretell_the_others():
    model = fit(of(KNOWN, (1, 2, 3, 4, 6, 8, 9, 12, 16, 20, 24, 32), per_node=8))
    for width in (5, 7, 10, 14, 18, 28):
        place = packed_allocation(width, 8)
        assert model.estimate(place).seconds == pytest.approx(KNOWN.seconds(place), rel=0.05)


def test_what_was_measured_stands_whatever_the_model_says():
    """Slower at three than at two and faster again at four: no seven parameters do that."""
    measured = {1: 4.0, 2: 2.2, 3: 9.0, 4: 1.3}
    curve = fit(points(*measured.items())).curve(5)
    for width, seconds in measured.items():
        assert curve[width - 1].seconds == pytest.approx(seconds)
    best = hull((each.place.width, 1 / each.seconds) for each in curve[:4])
    assert best.widths == (1, 2, 4)


def test_a_reversal_at_a_nodes_boundary_is_foretold_for_the_widths_beyond():
    """Yolo on four T4s a node: three times the seconds on five devices."""
    model = fit(points((1, 1.2), (2, 0.62), (4, 0.4), (5, 1.2), per_node=4))
    assert all(model.estimate(packed_allocation(width, 4)).seconds > 0.8 for width in (6, 7, 8))


def test_the_unit_of_time_does_not_matter():
    seconds = of(KNOWN, (1, 2, 4, 9), per_node=8)
    epochs = [replace(point, seconds=point.seconds * 7e4) for point in seconds]
    short, long = fit(seconds), fit(epochs)
    for width in range(1, 17):
        step, epoch = (model.estimate(packed_allocation(width, 8)) for model in (short, long))
        assert epoch.seconds == pytest.approx(7e4 * step.seconds, rel=1e-6)
        assert epoch.deviation == pytest.approx(step.deviation, rel=1e-6)


def test_the_unit_of_work_does_not_matter():
    parts = of(KNOWN, (1, 2, 4, 9), per_node=8)
    examples = [
        replace(each, place=replace(each.place, share=64 * each.place.share)) for each in parts
    ]
    by_part, by_example = fit(parts), fit(examples)
    for width in range(1, 17):
        part = by_part.estimate(packed_allocation(width, 8))
        example = by_example.estimate(packed_allocation(width, 8, batch=64))
        assert example.seconds == pytest.approx(part.seconds, rel=1e-6)


def test_points_of_several_batches_teach_one_another():
    """A study whose batch size is a hyperparameter: small batches were never run at width 2."""
    known = [
        Measured(packed_allocation(w, 8, b), KNOWN.seconds(packed_allocation(w, 8, b)))
        for w, b in ((1, 1.0), (2, 1.0), (4, 1.0), (1, 0.25))
    ]
    place = packed_allocation(2, 8, batch=0.25)
    assert fit(known).estimate(place).seconds == pytest.approx(KNOWN.seconds(place), rel=0.15)


@given(
    st.lists(
        st.tuples(st.integers(1, 64), st.sampled_from([None, 1, 4, 8]), st.floats(1e-6, 1e6)),
        min_size=1,
        max_size=12,
    )
)
@settings(max_examples=60, deadline=None)
def test_any_times_give_a_curve_that_goes_through_them(found):
    given_points = [
        Measured(packed_allocation(width, node), seconds) for width, node, seconds in found
    ]
    model = fit(given_points)
    for point in given_points:
        same = sorted(p.seconds for p in given_points if p.place == point.place)
        assert same[0] * 0.999 <= model.estimate(point.place).seconds <= same[-1] * 1.001
    for each in (model.estimate(packed_allocation(width, 4)) for width in range(1, 17)):
        assert 0 < each.seconds < math.inf
        assert NOISE / 4 < each.deviation < math.inf
