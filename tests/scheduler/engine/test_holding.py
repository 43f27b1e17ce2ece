"""The operator takes devices out and gives them back, whatever their workers do."""

from dataclasses import replace

import pytest
from penstock.scheduler.engine.engine import Refused
from penstock.scheduler.model.decisions import Cut, Dispatch, Member, Release, Revoke
from penstock.scheduler.model.events import (
    AttemptLost,
    DeviceDraining,
    DeviceJoined,
    DeviceLeft,
    DevicesGivenBack,
    DevicesTakenOut,
    LedgerRestored,
    Tick,
)
from penstock.scheduler.model.trial import TrialState
from worlds.drive_world import World, check_invariants, device, spec

A, B = "cpu.a.0", "cpu.a.1"


@pytest.fixture
def world():
    """One trial of three epochs at work on A; B is idle."""
    world = World()
    world.submit(spec(n_trials=1))
    world.join(A)
    world.join(B)
    world.engine.take_changes()
    yield world
    check_invariants(world.engine)


def take_out(world, *names, deadline=None):
    return world.send(DevicesTakenOut(at=world.at, devices=names, deadline=deadline))


def give_back(world, *names):
    return world.send(DevicesGivenBack(at=world.at, devices=names))


def places(world):
    return [m.device for d in world.open.values() for m in d.segment.members]


def shown(world):
    """Return the devices' states that the projections are told since the last call."""
    return {name: record.state for name, record in world.engine.take_changes().devices.items()}


def test_what_runs_is_cut_and_goes_on_elsewhere_after_its_epoch(world):
    [dispatch] = world.open.values()
    [cut] = take_out(world, A)
    assert isinstance(cut, Cut)
    assert cut.fence == dispatch.segment.fence
    assert shown(world) == {A: "draining"}
    decisions = world.send(world.epoch(dispatch, 1, closes=True))
    [following] = [d for d in decisions if isinstance(d, Dispatch)]
    assert following.segment.members == (Member(B, 0),)
    assert following.segment.first == 2
    assert shown(world) == {A: "drained"}
    world.run()
    assert world.finish.status == "complete"


def test_nothing_runs_until_a_device_is_given_back(world):
    take_out(world, A, B)
    world.run_segment()
    assert not world.open
    assert world.engine.state.trials["s-1-0000"].state is TrialState.WAITING
    give_back(world, B)
    assert places(world) == [B]
    assert shown(world) == {A: "drained", B: "joined"}


def test_a_device_given_back_before_its_epoch_ends_goes_on_there(world):
    [dispatch] = world.open.values()
    take_out(world, A)
    give_back(world, A)
    world.send(world.epoch(dispatch, 1, closes=True))
    assert places(world) == [A]


@pytest.mark.parametrize("back", ["at once", "after it left"])
def test_a_worker_that_is_started_anew_does_not_lift_the_drain(world, back):
    take_out(world, A)
    if back == "after it left":
        world.send(DeviceLeft(at=1.0, device=A, reason="silent"))
        assert shown(world)[A] == "held"
    world.send(DeviceJoined(at=1.0, device=device(A), incarnation="i2"))
    assert shown(world)[A] == "drained"
    assert places(world) == [B]


def test_a_worker_that_drains_and_comes_back_does_not_lift_it_either(world):
    take_out(world, B)
    world.send(DeviceDraining(at=1.0, device=B))
    assert shown(world) == {B: "draining"}
    world.send(DeviceJoined(at=2.0, device=device(B), incarnation="i1"))
    assert shown(world) == {B: "drained"}


def test_a_device_that_left_may_be_given_back_too(world):
    take_out(world, B)
    world.send(DeviceLeft(at=1.0, device=B, reason="silent"))
    world.engine.take_changes()
    give_back(world, B)
    [record] = world.engine.take_changes().devices.values()
    assert (record.state, record.reason, record.device) == ("left", "silent", device(B))
    world.join(B)
    assert shown(world) == {B: "joined"}


def test_what_runs_past_the_deadline_is_revoked_and_nobody_is_blamed(world):
    [dispatch] = world.open.values()
    take_out(world, A, deadline=5.0)
    assert world.engine.wake_at() == 5.0
    world.send(world.epoch(dispatch, 1, closes=False))
    world.at = 5.0
    decisions = world.send(Tick(at=5.0))
    assert [d.fence for d in decisions if isinstance(d, Revoke)] == [dispatch.segment.fence]
    [again] = world.open.values()
    assert again.segment.members == (Member(B, 0),)
    assert (again.segment.first, again.expect) == (2, "s-1-0000@1")
    assert world.engine.state.trials["s-1-0000"].losses == 0
    assert world.engine.state.devices[A].losses == 0
    assert shown(world)[A] == "drained"
    assert world.engine.wake_at() is None


def test_a_deadline_before_which_the_epoch_ends_wakes_nobody(world):
    [dispatch] = world.open.values()
    take_out(world, A, deadline=5.0)
    world.send(world.epoch(dispatch, 1, closes=True))
    assert world.engine.wake_at() is None


def test_a_device_that_is_drained_already_may_be_given_a_deadline(world):
    take_out(world, A)
    with pytest.raises(Refused, match="taken out already"):
        take_out(world, A)
    assert world.engine.wake_at() is None
    assert take_out(world, A, deadline=3.0) == ()
    assert world.engine.wake_at() == 3.0


def test_what_is_not_there_cannot_be_taken_out_nor_what_is_not_out_given_back(world):
    with pytest.raises(Refused, match="has not joined"):
        take_out(world, A, "cpu.a.9")
    assert not world.engine.state.held
    with pytest.raises(Refused, match="not taken out"):
        give_back(world, A)


def test_readers_see_when_a_device_rests_and_when_it_no_longer_does(world):
    take_out(world, B)
    world.engine.take_changes()
    for _ in range(3):
        [dispatch] = world.open.values()
        lost = AttemptLost(
            at=1.0, trial="s-1-0000", fence=dispatch.segment.fence, reason="its lease ran out"
        )
        world.send(lost)
    [record] = world.engine.take_changes().devices.values()
    assert (record.state, record.reason) == ("resting", "3 losses in a row")
    world.at = 2.0
    world.send(Tick(at=2.0))
    assert shown(world) == {A: "joined"}


def test_after_an_older_ledger_was_restored_what_was_sent_since_counts_for_nothing():
    world = World()
    world.submit(spec(n_trials=1))
    world.join(A)
    [before] = world.open.values()
    decisions = world.send(LedgerRestored(at=world.at))
    assert Revoke in {type(decision) for decision in decisions}
    released = {each.trial for each in decisions if isinstance(each, Release)}
    assert {"s-1-0000", "s-1-0001"} < released, "workers hold nothing of a trial by these names"
    assert not world.open, "a release would take along what is sent with it"
    [sent] = [each for each in world.send(Tick(at=world.at)) if isinstance(each, Dispatch)]
    assert sent.segment.fence > 500_000, "no fence of the forgotten future is given out again"
    assert sent.segment.first == before.segment.first
    for fence in (before.segment.fence, before.segment.fence + 7):
        forgotten = replace(world.epoch(before, 1), fence=fence)
        with pytest.raises(Refused, match="not the open one"):
            world.engine.handle(forgotten)
    world.send(world.epoch(sent, 1))
    # Another state than the accepted one: it may be that of other parameters.
    with pytest.raises(Refused, match="not the open one"):
        world.engine.handle(replace(world.epoch(before, 1), state_hash="f" * 64))
    [study] = world.engine.state.studies.values()
    assert not study.message
    check_invariants(world.engine)


def test_a_backup_that_is_restored_twice_gives_out_other_fences_each_time():
    fences = []
    for at in (1_770_000_000.0, 1_770_000_060.0):  # damaged again, a minute later
        world = World()
        world.submit(spec(n_trials=1))
        world.join(A)
        world.send(LedgerRestored(at=at))
        world.send(Tick(at=at))
        fences += world.open
    assert fences[0] + 10_000 < fences[1] < 2**53
