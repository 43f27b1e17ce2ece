"""Studies side by side: shares by weight and priority, and no device kept idle for anybody."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from penstock.app.ledger.codec import state_from_json, state_to_json
from penstock.scheduler.engine.engine import Engine
from penstock.scheduler.model.events import EpochReported, StudyWeighed
from penstock.scheduler.model.study import StrategySpec
from penstock.scheduler.policies import names
from penstock.scheduler.resources.fair_share import Claim, apportion, divide
from worlds.drive_world import World, check_invariants, spec

#: The policies under which each study has a share.
POLICIES = tuple(sorted(set(names.POLICIES) - names.CROSS_STUDY))
CLAIMS = st.lists(
    st.builds(Claim, st.floats(0.1, 10), st.integers(-1, 1), st.floats(0, 20)), max_size=6
)


@given(CLAIMS, st.integers(0, 20))
def test_shares_are_within_demand_and_leave_nothing_that_somebody_wants(claims, slots):
    shares = divide(claims, slots)
    demand = math.fsum(claim.demand for claim in claims)
    assert math.fsum(shares) == pytest.approx(min(demand, slots))
    assert all(0 <= s <= c.demand for s, c in zip(shares, claims, strict=True))


@given(CLAIMS, st.integers(0, 20))
def test_who_wants_more_has_no_less_for_its_weight_than_others_and_priority_goes_first(
    claims, slots
):
    shares = divide(claims, slots)
    for mine, share in zip(claims, shares, strict=True):
        if share >= mine.demand - 1e-6:
            continue
        for other, theirs in zip(claims, shares, strict=True):
            if other.priority == mine.priority:
                assert theirs / other.weight <= share / mine.weight + 1e-6
            if other.priority < mine.priority:
                assert theirs == 0


@given(st.lists(st.floats(0, 10), min_size=1, max_size=6), st.integers(0, 30))
def test_whole_shares_are_all_given_out_and_within_one(shares, whole):
    found = apportion(shares, whole)
    total = math.fsum(shares)
    assert sum(found) == (whole if total else 0)
    for share, got in zip(shares, found, strict=True):
        assert not total or abs(got - share / total * whole) < 1 + 1e-6


def of(event: EpochReported) -> str:
    return event.trial.rpartition("-")[0]


def test_a_study_that_comes_later_begins_without_credit():
    """It gets nothing back for the time before it came: from then on all share evenly."""
    world = World()
    world.join("d0", "d1")
    world.submit(spec(n_trials=50, max_segment=1))
    for _ in range(20):
        world.run_segment()
    world.submit(spec(id="s-2", name="t", n_trials=50, max_segment=1))
    begun = len(world.journal)
    for _ in range(40):
        world.run_segment()
        check_invariants(world.engine)
    had = Counter(of(e) for e in world.journal[begun:] if isinstance(e, EpochReported))
    assert abs(had["s-1"] - had["s-2"]) <= 4


def test_a_weight_that_is_changed_while_they_run_counts_from_then_on():
    world = World()
    world.join("d0", "d1", "d2", "d3")
    for name in ("s-1", "s-2"):
        world.submit(spec(id=name, name=name, n_trials=90, max_segment=1))
    for _ in range(20):
        world.run_segment()
    world.send(StudyWeighed(at=world.at, study="s-1", weight=3.0, priority=0))
    begun = len(world.journal)
    for _ in range(80):
        world.run_segment()
    had = Counter(of(e) for e in world.journal[begun:] if isinstance(e, EpochReported))
    assert had["s-1"] / had["s-2"] == pytest.approx(3.0, rel=0.2)


def test_shares_survive_a_snapshot_and_a_replay():
    world = World()
    world.join("d0", "d1", "d2")
    for name, weight in (("s-1", 2.0), ("s-2", 1.0)):
        world.submit(spec(id=name, name=name, n_trials=20, max_segment=1, weight=weight))
    for _ in range(25):
        world.run_segment()
    again = Engine()
    for event in world.journal:
        again.handle(event)
    text = state_to_json(again.state)
    assert text == state_to_json(world.engine.state)
    assert state_to_json(state_from_json(text)) == text


def crowded(newcomers, priority=0):
    """A long study that holds both devices, and newcomers that came while it did."""
    world = World()
    world.join("d0", "d1")
    plan = StrategySpec("full", max_epochs=1000)
    world.submit(spec(plan, id="long", n_trials=2, contract="torch", max_segment=1))
    for number in range(newcomers):
        name = f"new{number}"
        fields = {"n_trials": 1, "contract": "torch", "max_segment": 1, "priority": priority}
        world.submit(spec(plan, id=name, name=name, **fields))
    return world


def at_work(world):
    return sorted(attempt.study for attempt in world.engine.state.attempts.values())


def turns(world, segments):
    """Return the studies at work after each of ``segments`` segments of a tenth of a second."""
    found = []
    for _ in range(segments):
        world.at += 0.1
        world.run_segment()
        found.append(at_work(world))
    return found


def test_newcomers_who_are_due_less_than_a_slot_each_get_the_one_that_they_are_due_together():
    """Two of them and the long study are due two thirds of a slot each, and that one holds two."""
    world = crowded(2)
    assert at_work(world) == ["long", "long"]
    [first] = turns(world, 1)
    assert first.count("long") == 1
    after = turns(world, 40)
    assert all(each == after[0] for each in after), "a whole slot is not misplaced any more"


def test_higher_priorities_get_every_slot_at_once_however_many_they_are():
    world = crowded(3, priority=1)
    turns(world, 2)
    assert "long" not in at_work(world)


def test_studies_that_are_many_do_not_take_turns_at_every_segment():
    world = crowded(5)
    turns(world, 4)
    after = turns(world, 60)
    assert all(each == after[0] for each in after)
