"""Water-filling: courses and forecasts by hand, and what every plan promises."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from penstock.scheduler.model.snapshot import Candidate, Snapshot, WidthPlan, steady
from penstock.scheduler.policies.planner.bounds import fluid_bound, whole_epochs_bound
from penstock.scheduler.policies.planner.candidates import PROGRESS, candidate_plans
from penstock.scheduler.policies.planner.list_scheduling import forecast
from penstock.scheduler.policies.planner.width_plan import Job, cheapest_width_plan, curve_of
from penstock.scheduler.policies.planner.windows import SHARE
from penstock.scheduler.policies.waterfill import waterfill

#: 1, 1.8 and 2.4 times as fast on 1, 2 and 3 devices; four are slower than two (another node).
SHAPE = ((1, 1.0), (2, 1 / 1.8), (3, 1 / 2.4), (4, 1 / 1.5))


def job(name="a", epochs=10, *, level=1.0, shape=SHAPE, devices=4, price=0.0, **at):
    there = {"boundary": 0.0, "held": 0, "last": 0} | at
    curve = curve_of(shape, devices, there["last"])
    return Job(name, epochs, level=level, curve=curve, resize_cost=price, **there)


def test_the_fluid_bound_of_one_trial_is_its_time_at_its_fastest_width():
    assert fluid_bound([(10.0, job().curve.hull)], 4) == pytest.approx(10 / 2.4)


def test_the_fluid_bound_of_many_equal_trials_is_their_work_over_the_devices():
    work = [(10.0, job().curve.hull)] * 8
    assert fluid_bound(work, 4) == pytest.approx(20.0)


def test_one_epoch_cannot_be_shared_between_two_widths():
    """Three trials of one epoch on four devices: none can have 4/3 of a device.

    To end within a second each needs two of them for 1 / 1.8 s: 3.33 device-seconds of 4 a second.
    """
    work = [(1, 1.0, SHAPE)] * 3
    fluid = fluid_bound([(1.0, job().curve.hull)] * 3, 4)
    whole = whole_epochs_bound(work, 4)
    assert fluid < 0.8
    assert whole == pytest.approx(2 / 1.8 * 3 / 4)


def test_a_width_that_is_slower_than_a_narrower_one_is_not_planned_with():
    assert curve_of(SHAPE, 4).widths == (1, 2, 3)
    assert 4 in curve_of(SHAPE, 4, keep=4).factor


def test_the_cheapest_course_is_narrow_where_there_is_time():
    assert cheapest_width_plan(job(), 10.0) == (10.0, steady(1))


def test_with_less_time_a_part_of_the_epochs_is_run_wide():
    """Ten epochs within eight seconds: five on two devices (2.78 s) and five on one."""
    area, course = cheapest_width_plan(job(), 8.0)
    assert course == WidthPlan(1, 2, 5)
    assert area == pytest.approx(5 * 2 / 1.8 + 5)


def test_a_resize_that_costs_more_than_it_saves_is_not_planned():
    _, course = cheapest_width_plan(job(price=3.0), 8.0)
    assert course == steady(2)


def test_what_cannot_end_in_time_has_no_course():
    assert cheapest_width_plan(job(), 4.1) is None


def test_devices_that_become_free_widen_a_trial_at_the_end_of_its_epoch():
    """b ends at 2.5 s; a, at work since 0, is widened at 3 s and is then wide for four epochs."""
    jobs = [job("a", 7), job("b", 1, level=2.5, shape=((1, 1.0),))]
    done = forecast(jobs, 2, [WidthPlan(1, 2, 4), steady(1)], [1.0, 0.0])
    assert done.widths == {"a": 1, "b": 1}
    assert done.makespan == pytest.approx(3 + 4 / 1.8)


def test_a_plan_that_waits_for_ever_is_none():
    assert forecast([job()], 1, [steady(2)], [0.0]) is None


def test_patience_keeps_what_becomes_free_for_who_waits_at_its_boundary():
    """Of two devices a has one until 1 s and is to have both; b's is free at 3 s, c waits for it.

    Without patience c gets it, and a is narrow from 1 to 11 s, then wide for three epochs of 5 s.
    """
    linear = ((1, 1.0), (2, 0.5))
    a = job("a", 4, level=10.0, shape=linear, devices=2, boundary=1.0, held=1, last=1)
    b = job("b", 0, level=10.0, shape=linear, devices=2, boundary=3.0, held=1, last=1)
    c = job("c", 1, level=2.0, shape=linear, devices=2)
    courses = [steady(2), steady(1), steady(1)]
    hasty = forecast([a, b, c], 2, courses, [0.0, 1.0, 2.0])
    patient = forecast([a, b, c], 2, courses, [0.0, 1.0, 2.0], blocking=True)
    assert (hasty.makespan, hasty.widths["a"]) == (pytest.approx(26.0), 1)
    assert (patient.makespan, patient.widths["a"]) == (pytest.approx(25.0), 2)


def test_with_patience_others_at_their_boundaries_go_on_with_what_they_hold():
    linear = ((1, 1.0), (2, 0.5))
    a = job("a", 4, level=10.0, shape=linear, devices=2, boundary=1.0, held=1, last=1)
    b = job("b", 2, level=1.0, shape=linear, devices=2, boundary=1.0, held=1, last=1)
    found = forecast([a, b], 2, [steady(2), WidthPlan(1, 2, 1)], [0.0, 1.0], blocking=True)
    assert found.widths == {"a": 2, "b": 1}
    assert found.makespan == pytest.approx(1 + 2 + 4 * 5)


works = st.lists(
    st.tuples(st.integers(1, 9), st.floats(0.5, 20), st.floats(0.3, 1.0)), min_size=1, max_size=9
)


@settings(max_examples=60, deadline=None)
@given(works, st.integers(1, 9), st.sampled_from([0.0, 0.3, 5.0]))
def test_drafts_get_better_and_none_beats_the_bound(works, devices, price):
    jobs = []
    for at, (epochs, level, power) in enumerate(works):
        shape = tuple((width, width**-power) for width in range(1, 7))
        jobs.append(job(f"t{at}", epochs, level=level, shape=shape, devices=devices, price=price))
    bound = fluid_bound([(each.work, each.curve.hull) for each in jobs], devices)
    ends = [draft.forecast.makespan for draft in candidate_plans(jobs, devices)]
    assert ends == sorted(ends, reverse=True)
    assert ends[-1] >= bound * (1 - 1e-6)
    longest_first = sorted(jobs, key=lambda each: -each.epochs * each.level)
    plain = forecast(longest_first, devices, [steady(1)] * len(jobs), list(range(len(jobs))))
    assert ends[-1] <= plain.makespan * (1 + 1e-6)


def candidate(name, epochs, **more):
    there = {"level": 1.0, "shape": SHAPE} | more
    return Candidate(name, "s", 0, epochs, 0.0, widest=4, **there)


def test_a_trial_alone_gets_the_width_that_is_fastest_and_not_more():
    plan = waterfill(Snapshot(0.0, (candidate("a", 10),), 4, devices=4))
    assert plan.widths == {"a": 3}


def test_idle_devices_widen_who_has_longest_to_go():
    """a cannot end before 20 / 2.4 s: b and c, done in time on a device each, would leave two.

    b is widened first, and would then end before c.
    """
    waiting = (candidate("a", 20), candidate("b", 7), candidate("c", 4))
    plan = waterfill(Snapshot(0.0, waiting, 7, devices=7))
    assert plan.widths == {"a": 3, "b": 2, "c": 2}


def test_idle_devices_do_not_widen_a_trial_for_less_than_twice_the_price():
    running = (candidate("a", 30, width=3, boundary=0.1), candidate("b", 6, width=1, boundary=0.1))
    for price, width in ((0.1, 2), (3.0, 1)):
        plan = waterfill(Snapshot(0.0, (), 0, running, 1, devices=5, resize=price))
        assert plan.widths["b"] == width


def test_with_devices_to_spare_trials_of_which_nothing_is_known_begin_wide():
    waiting = tuple(candidate(f"t{k}", 3, level=None) for k in range(2))
    plan = waterfill(Snapshot(0.0, waiting, 4, devices=4))
    assert plan.widths == {"t0": 2, "t1": 2}


def test_unmeasured_trials_that_may_not_be_wider_get_a_device_each():
    waiting = tuple(candidate(f"t{k}", 3, level=None, shape=((1, 1.0),)) for k in range(3))
    plan = waterfill(Snapshot(0.0, waiting, 4, devices=4))
    assert [plan.widths.get(each.trial, 1) for each in waiting] == [1, 1, 1]
    assert not plan.windows


def test_a_window_is_for_who_has_most_left_and_takes_what_the_plan_leaves_idle():
    hope = ((1, 1.0), (2, 0.5), (3, 0.3), (4, 0.2))
    flat = tuple((width, 1.0) for width in (1, 2, 3, 4))
    long, short = (candidate(name, n, shape=flat, hope=hope) for name, n in (("a", 9), ("b", 3)))
    for devices, windows in ((2, {}), (3, {"a": (1, 2)}), (4, {"a": (1, 2), "b": (1, 2)})):
        plan = waterfill(Snapshot(0.0, (short, long), devices, devices=devices))
        assert {name: each.widths for name, each in plan.windows.items()} == windows
        assert all(plan.windows[name].epochs == SHARE * 9 for name in windows if name == "a")
    alone = waterfill(Snapshot(0.0, (long,), 9, devices=9))
    assert alone.windows["a"].widths == (1, 2, 4, 3)


def test_a_window_has_the_width_at_which_epochs_were_measured_where_one_device_was_not():
    shape = ((1, 1.0), (2, 0.6), (3, 0.5), (4, 0.5), (5, 0.5), (6, 0.5))
    hope = ((1, 1.0), (2, 0.6), (3, 0.5), (4, 0.2), (5, 0.2), (6, 0.2))
    for measured, widths in (((3,), (1, 2, 4, 6, 3)), ((1, 3), (1, 2, 4, 6))):
        fields = {"shape": shape, "hope": hope, "measured": measured, "widest": 6}
        waits = Candidate("a", "s", 0, 90, 0.0, level=9.0, **fields)
        plan = waterfill(Snapshot(0.0, (waits,), 9, devices=9))
        assert plan.windows["a"].widths == widths


@pytest.mark.parametrize(
    ("why", "fields"),
    [
        (
            "there is little to hope for",
            {"level": 5.0, "hope": tuple((w, 0.97) for w in range(1, 5))},
        ),
        ("its speeds are given", {"hope": tuple((width, 1.0) for width in (1, 2, 3, 4))}),
        ("its windows were cut before", {"level": 9.0, "cut_windows": 3}),
        ("its epochs are short", {"level": 0.1}),
        ("a resize takes longer than the window may", {"level": 0.5}),
        ("it measured more than half of these widths", {"level": 9.0, "window": 3}),
        ("it ran at more than half of these widths", {"level": 9.0, "measured": (1, 3)}),
        ("widths of its study cannot be measured", {"level": 9.0, "measurable": False}),
        ("it may not be wider", {"level": 9.0, "widest": 1}),
    ],
)
def test_there_is_no_window_where(why, fields):
    flat = tuple((width, 1.0) for width in (1, 2, 3, 4))
    more = {"level": 9.0, "widest": 4, "hope": ((1, 1.0), (2, 0.5), (3, 0.3), (4, 0.2))}
    for changed, windows in ((fields, 0), ({}, 1)):
        waits = Candidate("a", "s", 0, 9, 0.0, shape=flat, **more | changed)
        plan = waterfill(Snapshot(0.0, (waits,), 4, devices=4, resize=0.5))
        assert len(plan.windows) == windows, why


def test_the_standing_plan_is_kept_where_no_other_is_better():
    """a is wide for its last 5 epochs, once b has ended; 4 in a new plan would be as good."""
    epochs = {"a": 9, "b": 11}
    waiting = tuple(candidate(name, n) for name, n in epochs.items())
    first = waterfill(Snapshot(0.0, waiting, 3, devices=3))
    assert first.courses["a"] == WidthPlan(1, 2, 5)
    running = tuple(
        candidate(name, n, width=first.widths[name], boundary=0.5, course=first.courses[name])
        for name, n in epochs.items()
    )
    after = Snapshot(0.0, (), 0, running, 0, devices=3, rule=first.rule, deadline=first.deadline)
    assert waterfill(after).courses == first.courses
    assert waterfill(replace(after, rule="")).courses != first.courses


def test_who_could_not_be_widened_for_want_of_a_moment_in_which_enough_is_free_is_waited_for():
    """Short trials take whatever becomes free; a's epochs are longer than all of theirs."""
    shape = ((1, 1.0), (2, 0.5), (3, 1 / 3), (4, 0.25))
    more = {"shape": shape}
    running = (
        candidate("a", 6, level=100.0, width=1, boundary=20.0, **more),
        *(candidate(f"b{k}", 1, level=5.0, width=1, boundary=1.0 + k, **more) for k in range(3)),
    )
    waiting = tuple(candidate(f"c{k}", 1, level=5.0, **more) for k in range(40))
    plan = waterfill(Snapshot(0.0, waiting, 0, running, 0, devices=4))
    assert plan.patient
    assert plan.widths["a"] > 1


def test_without_devices_nothing_is_planned():
    plan = waterfill(Snapshot(0.0, (candidate("a", 3),), 0))
    assert plan.order == ("a",)
    assert not plan.courses


def test_where_trials_go_on_alone_a_plan_is_for_an_early_mean_completion():
    """Two devices, linear speed-up: short trials first, on both, delay the long one by little."""
    curve = curve_of(((1, 1.0), (2, 0.5)), 2)
    jobs = [
        Job(name, epochs, 0.0, 0, 0, 1.0, curve, 0.0)
        for name, epochs in (("long", 20), ("short", 2), ("shorter", 2))
    ]
    *_, for_all = candidate_plans(jobs, 2)
    *_, for_each = candidate_plans(jobs, 2, PROGRESS)
    assert for_each.forecast.completion < for_all.forecast.completion
    assert for_each.forecast.makespan <= 1.2 * for_all.forecast.makespan
