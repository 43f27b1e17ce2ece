"""The number of epochs that a task carries, and its reasons."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from penstock.app.ledger.codec import state_from_json, state_to_json
from penstock.profiling.costs.segment_costs import FIRST_OVERHEAD, FIRST_RESUME, SegmentStart
from penstock.scheduler.engine.engine import Engine
from penstock.scheduler.model.segment_length import LengthReason
from penstock.scheduler.model.study import StrategySpec
from penstock.scheduler.policies.segments import (
    MAX_DELAY,
    MAX_OVERHEAD,
    balanced_seconds,
    segment_length,
)
from worlds.drive_world import World, spec

STORE, TRAINER = SegmentStart.STORE, SegmentStart.TRAINER


def length(epoch, limit=10**6, limited_by=LengthReason.TARGET, **fields):
    known = {"overhead": 0.01, "resume": 0.0, "tier": TRAINER, "interval": 50.0, "running": 1}
    return segment_length(epoch, limit, limited_by, **known | fields)


def test_overhead_and_the_waiting_of_others_are_balanced_as_youngs_formula_says():
    found = length(0.05)  # sqrt(2 * 10 ms * 50 s) = 1 s
    assert (found.epochs, found.reason) == (20, LengthReason.BALANCE)
    assert (found.overhead, found.resume, found.interval) == (0.01, 0.0, 50.0)


def simulated_cost(seconds, *, overhead, resume, interval, running, seed):
    """Simulate a slot's cost a second: random preemptions, several segments at a time.

    It does not use the tested formula.
    """
    chance, paid, horizon = random.Random(seed), 0.0, 60_000 * seconds
    paid += overhead * horizon / seconds
    at, last = chance.expovariate(1.0 / interval), -1
    while at < horizon:
        ends = [seconds * chance.random() for _ in range(running - 1)]
        own = seconds - at % seconds
        paid += min([own, *ends])
        if (segment := int(at // seconds)) != last:
            paid, last = paid + resume, segment
        at += chance.expovariate(1.0 / interval)
    return paid / horizon


@pytest.mark.parametrize(
    ("overhead", "resume", "interval", "running"),
    [(0.01, 0.0, 2.0, 1), (0.01, 0.2, 0.5, 1), (0.02, 0.0, 3.0, 4), (0.005, 0.5, 0.8, 2)],
)
def test_no_other_length_costs_less_in_a_simulation(overhead, resume, interval, running):
    best = balanced_seconds(overhead, resume, interval, running)
    known = {"overhead": overhead, "resume": resume, "interval": interval, "running": running}
    costs = {
        factor: sum(simulated_cost(factor * best, **known, seed=seed) for seed in range(3)) / 3
        for factor in (0.5, 1.0, 1.6)
    }
    assert costs[1.0] < costs[0.5]
    assert costs[1.0] < costs[1.6]


def test_a_dear_resume_makes_segments_longer_only_where_preemptions_are_frequent():
    cheap, dear = length(0.01, interval=1.0), length(0.01, interval=1.0, resume=2.0, tier=STORE)
    assert dear.epochs > 4 * cheap.epochs
    assert dear.tier is STORE
    rare = [length(0.01, interval=80.0, resume=price).epochs for price in (0.0, 2.0)]
    assert rare[0] < rare[1] < 1.05 * rare[0]


def test_overhead_never_takes_more_than_its_share():
    found = length(0.001, interval=0.001)
    assert found.reason is LengthReason.OVERHEAD
    assert found.overhead / (found.overhead + found.epochs * 0.001) <= MAX_OVERHEAD


def test_nobody_waits_for_longer_than_the_bound_however_rare_they_are():
    found = length(0.3, interval=1e6)
    assert (found.epochs, found.reason) == (6, LengthReason.DELAY)
    # That bound goes before the share of overhead.
    assert length(0.3, overhead=1.0).epochs == 6


def test_an_epoch_is_the_floor():
    assert length(60.0, interval=1e9).epochs == 1
    assert length(60.0).reason is LengthReason.EPOCH
    assert length(60.0, limit=1).reason is LengthReason.TARGET


def test_what_is_not_measured_is_tried_by_one_epoch():
    found = length(None)
    assert (found.epochs, found.reason) == (1, LengthReason.UNMEASURED)


def test_a_limit_is_told_where_it_decides():
    found = length(0.05, 3, LengthReason.STUDY)
    assert (found.epochs, found.reason) == (3, LengthReason.STUDY)
    assert length(0.05, 21, LengthReason.STUDY).reason is LengthReason.BALANCE


@given(
    st.floats(0, 1e4),
    st.floats(0, 1),
    st.floats(0, 100),
    st.floats(1e-3, 1e6),
    st.integers(1, 500),
    st.integers(1, 10**9),
)
def test_the_length_is_within_its_bounds(epoch, overhead, resume, interval, running, limit):
    given = {"overhead": overhead, "resume": resume, "interval": interval, "running": running}
    found = length(epoch, limit, **given)
    assert 1 <= found.epochs <= limit
    assert found.epochs == 1 or found.epochs * epoch <= MAX_DELAY + 1e-9
    assert found.epochs == 1 or found.reason is not LengthReason.EPOCH
    assert math.isfinite(balanced_seconds(**given))


# -- as the engine knows it ----------------------------------------------------------------------


def world(*devices, **fields):
    found = World()
    found.join(*devices)
    plan = StrategySpec("full", max_epochs=4000)
    found.submit(spec(plan, **{"n_trials": 1, "contract": "torch"} | fields))
    return found


def run_segment(at, dispatch, seconds=0.05, outside=0.008, within=0.002):
    """Send the segment's epochs, each with its time in addition to training."""
    segment = dispatch.segment
    at.at += outside
    for epoch in range(segment.first, segment.last + 1):
        at.at += seconds + within
        at.send(at.epoch(dispatch, epoch, closes=epoch == segment.last, seconds=seconds))


def newest(at):
    return at.open[max(at.open)]


def attempt(at):
    return at.engine.state.attempts[newest(at).segment.fence]


def test_the_engine_learns_the_overhead_and_says_what_it_chose_by():
    at = world("d0")
    assert attempt(at).length.reason is LengthReason.UNMEASURED
    assert attempt(at).start is SegmentStart.NEW
    for _ in range(12):
        run_segment(at, newest(at))
    costs, found = at.engine.state.costs, attempt(at)
    assert costs.segment_overhead == pytest.approx(0.008, rel=0.05)
    assert found.start is SegmentStart.NEXT
    assert found.segment.n == found.length.epochs > 10
    assert found.length.overhead == costs.segment_overhead
    assert found.length.tier is TRAINER, "there is no other slot"


def test_the_tightest_limit_is_the_one_that_is_told():
    at = world("d0", max_segment=5)
    for _ in range(4):
        run_segment(at, newest(at))
    assert (attempt(at).segment.n, attempt(at).length.reason) == (5, LengthReason.STUDY)
    at = World()
    at.join("d0")
    at.submit(spec(StrategySpec("full", max_epochs=3), n_trials=1, contract="torch"))
    run_segment(at, newest(at))
    assert (attempt(at).segment.n, attempt(at).length.reason) == (2, LengthReason.TARGET)


def test_the_first_epoch_of_a_segment_has_its_length_and_no_other_has():
    at = world("d0")
    for _ in range(3):
        run_segment(at, newest(at))
    rows = at.engine.take_changes().epochs
    first = {fence: epoch for epoch, fence in ((r.epoch, r.fence) for r in reversed(rows))}
    assert [row.length is not None for row in rows] == [
        first[row.fence] == row.epoch for row in rows
    ]
    lengths = [row.length.epochs for row in rows if row.length]
    assert lengths == [sum(row.fence == fence for row in rows) for fence in sorted(first)]


def test_a_trial_that_gives_way_counts_as_a_preemption_and_shows_what_a_resume_costs():
    """Two studies on two devices: each is to have one, so one of the first study's gives way."""
    at = world("d0", "d1", n_trials=2)
    for _ in range(4):
        for dispatch in list(at.open.values()):
            run_segment(at, dispatch)
    state = at.engine.state
    assert state.preemptions.preemptions == 0.0
    assert attempt(at).length.tier is STORE
    before = state.preemptions.interval
    at.submit(spec(StrategySpec("full", max_epochs=4), id="s-2", name="two", n_trials=1))
    given_way = min(at.open.values(), key=lambda each: each.segment.fence)
    run_segment(at, given_way)
    assert state.preemptions.preemptions > 0.9
    assert state.preemptions.interval < before
    other = next(each for each in at.open.values() if each.study == "s-2")
    while other is not None:
        run_segment(at, other)
        other = next((each for each in at.open.values() if each.study == "s-2"), None)
    resumed = state.attempts[state.trials[given_way.segment.trial].fence]
    assert resumed.start is TRAINER
    overhead = state.costs.segment_overhead
    run_segment(at, at.open[resumed.segment.fence], outside=0.5)
    assert state.costs.resume("s-1", TRAINER) == pytest.approx(0.5 - overhead, rel=0.02)
    assert state.costs.segment_overhead == overhead


def test_after_a_loss_the_state_is_not_in_the_trainer():
    at = world("d0")
    for _ in range(3):
        run_segment(at, newest(at))
    at.send(at.lost(newest(at), "its trainer was killed"))
    assert attempt(at).start is STORE


def test_a_replay_from_a_snapshot_chooses_the_same_lengths():
    at, again = world("d0"), world("d0")
    for number in range(20):
        run_segment(at, newest(at))
        run_segment(again, newest(again))
        if number % 5 == 0:
            again.engine = Engine(state_from_json(state_to_json(again.engine.state)))
        assert attempt(at).length == attempt(again).length


def test_nothing_is_assumed_to_be_free_before_it_was_measured():
    assert FIRST_OVERHEAD > 0.0
    assert FIRST_RESUME[STORE] > FIRST_RESUME[TRAINER] == 0.0
