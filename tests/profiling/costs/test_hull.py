"""Concave hulls of speed curves: by hand, and as properties of any points."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from penstock.profiling.costs.hull import hull

positive = st.integers(1, 400).map(lambda count: Fraction(count, 12))
some_points = st.lists(st.tuples(positive, positive), min_size=1, max_size=12)


def test_a_curve_that_is_concave_is_its_own_hull():
    points = ((1, 1.0), (2, 1.8), (3, 2.4), (4, 2.8))
    assert hull(points).breakpoints == points


def test_a_width_that_is_slower_than_a_narrower_one_is_no_breakpoint():
    """BERT on T4s: 2.95 times as fast on four devices, 0.87 times on five, of two nodes."""
    assert hull([(1, 1.0), (4, 2.95), (5, 0.87)]).breakpoints == ((1, 1.0), (4, 2.95))


def test_a_dip_is_bridged_by_the_widths_beside_it():
    curve = hull([(1, 1.0), (2, 1.3), (3, 1.2), (4, 2.2), (8, 3.0)])
    assert curve.breakpoints == ((1, 1.0), (4, 2.2), (8, 3.0))
    assert curve.width_for(1.4) == pytest.approx(2.0)


def test_two_trials_on_a_device_are_a_width_of_one_half():
    """Each at 0.7 of the speed it has alone: the device does 1.4 times the work."""
    curve = hull([(0.5, 0.7), (1, 1.0), (2, 1.5)])
    assert curve.breakpoints == ((0.5, 0.7), (1, 1.0), (2, 1.5))
    assert curve.width_for(0.35) == 0.25


def test_sharing_that_hurts_is_no_breakpoint():
    assert hull([(0.5, 0.4), (1, 1.0)]).breakpoints == ((1, 1.0),)


def test_points_on_a_straight_line_leave_its_end_only():
    assert hull([(1, 1), (2, 2), (3, 3)]).breakpoints == ((3, 3),)


def test_of_two_speeds_at_one_width_the_higher_counts():
    assert hull([(2, 1.0), (2, 1.5), (1, 1.0)]).breakpoints == ((1, 1.0), (2, 1.5))


def test_a_curve_of_one_point_is_a_line_from_zero():
    curve = hull([(4, 2.0)])
    assert [curve.width_for(speed) for speed in (0, 0.5, 1, 2.0, 2.1)] == [0, 1, 2, 4, math.inf]


@given(some_points)
def test_breakpoints_are_points_and_the_hull_is_above_all(points):
    curve = hull(points)
    assert set(curve.breakpoints) <= set(points)
    assert all(curve.width_for(speed) <= width for width, speed in points)
    assert curve.speeds[-1] == max(speed for _, speed in points)


@given(some_points)
def test_a_hull_is_strictly_concave_and_rises(points):
    corners = ((0, 0), *hull(points).breakpoints)
    slopes = [(right[1] - left[1]) / (right[0] - left[0]) for left, right in pairwise(corners)]
    assert all(steep > flat for steep, flat in pairwise(slopes))
    assert slopes[-1] > 0


@given(some_points)
def test_no_average_of_two_points_is_above_the_hull(points):
    curve = hull(points)
    for left in points:
        for right in points:
            middle = (left[0] + right[0]) / 2, (left[1] + right[1]) / 2
            assert curve.width_for(middle[1]) <= middle[0]


@given(some_points, st.integers(0, 60).map(lambda part: Fraction(part, 60)))
def test_between_two_breakpoints_widths_rise_in_proportion(points, share):
    corners = ((0, 0), *hull(points).breakpoints)
    for (narrow, slow), (wide, fast) in pairwise(corners):
        speed = slow + share * (fast - slow)
        assert hull(points).width_for(speed) == narrow + share * (wide - narrow)
