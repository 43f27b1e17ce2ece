"""Widths in the engine: who grows, who shrinks, and that gangs hold whole devices."""

from penstock.scheduler.engine.attempts import RESTS
from penstock.scheduler.model.decisions import Cut, Dispatch, Member, Revoke
from penstock.scheduler.model.events import (
    DeviceDraining,
    DeviceJoined,
    PolicyChosen,
    Tick,
)
from penstock.scheduler.model.snapshot import WidthPlan, steady
from penstock.scheduler.model.study import StrategySpec, shards_of
from penstock.scheduler.resources.slot_choice import members_of
from worlds.drive_world import World, check_invariants, device, spec

from testkit.random_widths import RANDOM_WIDTHS, random_widths


def elastic(**fields):
    plan = StrategySpec("full", max_epochs=fields.pop("epochs", 6))
    return spec(plan, **{"max_width": 4, "shards": 8, "n_trials": 1, "max_segment": 1, **fields})


def world(*names: str, slots: int = 1, **fields) -> World:
    found = World()
    found.join(*names, slots=slots)
    found.submit(elastic(**fields))
    return found


def run_epoch(at: World, **changes):
    """The oldest open segment's next epoch, ten seconds later; what the engine decides."""
    dispatch = at.open[min(at.open)]
    wake = at.engine.wake_at()
    at.at += 10.0
    if wake is not None and wake < at.at:
        at.send(Tick(at=wake))
    epoch = at.engine.state.trials[dispatch.segment.trial].epoch + 1
    return at.send(at.epoch(dispatch, epoch, **changes))


def widths(at: World) -> list[int]:
    return [len(d.segment.members) for d in at.open.values()]


def test_a_lone_trial_grows_onto_free_devices_once_an_epoch_was_measured():
    at = world("d0", "d1", "d2")
    assert widths(at) == [1]
    run_epoch(at, seconds=5.0)
    run_epoch(at, seconds=5.0)
    assert widths(at) == [3]
    check_invariants(at.engine)


def test_epochs_that_are_short_are_not_worth_a_gang():
    at = world("d0", "d1")
    for _ in range(3):
        run_epoch(at, seconds=0.05)
    assert widths(at) == [1]


def test_a_width_that_was_no_faster_is_taken_back():
    at = world("d0", "d1")
    run_epoch(at, seconds=5.0)
    run_epoch(at, seconds=5.0)
    assert widths(at) == [2]
    run_epoch(at, seconds=4.9)
    assert widths(at) == [1]
    run_epoch(at, seconds=5.0)
    assert widths(at) == [1]


def test_a_wide_trial_makes_room_for_one_that_waits():
    at = world("d0", "d1", max_segment=64, epochs=50)
    run_epoch(at, seconds=0.25)
    run_epoch(at, seconds=0.25, closes=True)
    assert widths(at) == [2]
    at.at += 2
    at.submit(elastic(id="s-2", name="t"))
    at.send(Tick(at=at.at))
    assert any(isinstance(d, Cut) for d in at.trace), "the wide segment was not cut"
    run_epoch(at, seconds=0.2, closes=True)
    assert widths(at) == [1, 1]
    check_invariants(at.engine)


def test_a_gang_takes_whole_devices_and_gives_back_all_their_slots():
    at = world("d0", "d1", slots=2)
    run_epoch(at, seconds=5.0)
    run_epoch(at, seconds=5.0)
    assert widths(at) == [2]
    assert all(len(set(d.fences)) == 1 for d in at.engine.state.devices.values())
    run_epoch(at, seconds=1.0, closes=True)
    check_invariants(at.engine)


def test_a_gang_that_loses_one_member_is_lost_whole_and_only_that_device_is_blamed():
    at = world("d0", "d1")
    run_epoch(at, seconds=5.0)
    run_epoch(at, seconds=5.0)
    dispatch = at.open[min(at.open)]
    lost = at.lost(dispatch, "its lease ran out", ranks=(1,))
    [revoke] = [d for d in at.send(lost) if isinstance(d, Revoke)]
    assert revoke.ranks == 2
    blamed = dispatch.segment.members[1].device
    assert {n: d.losses for n, d in at.engine.state.devices.items()} == {
        dispatch.segment.members[0].device: 0,
        blamed: 1,
    }


def test_a_gang_shrinks_off_a_draining_device_and_grows_back():
    at = world("d0", "d1", epochs=20)
    run_epoch(at, seconds=5.0)
    run_epoch(at, seconds=5.0)
    at.send(DeviceDraining(at=at.at, device="d1"))
    run_epoch(at, seconds=3.0)
    [dispatch] = at.open.values()
    assert [m.device for m in dispatch.segment.members] == ["d0"]
    at.send(DeviceJoined(at=at.at, device=device("d1"), incarnation="i2"))
    run_epoch(at, seconds=5.0)
    assert widths(at) == [2]


def test_the_first_member_is_one_that_has_the_state():
    at = world("d0", "d1", "d2")
    at.submit(elastic(id="s-2", name="t", n_trials=1))
    while any(d.segment.first < 3 for d in at.open.values()):
        run_epoch(at, seconds=5.0)
    for dispatch in at.trace:
        if isinstance(dispatch, Dispatch) and dispatch.segment.first > 1:
            assert dispatch.holder == "h", "the segment does not know who holds the state"


def test_random_widths_differ_and_every_study_still_ends():
    at = World(policy=random_widths)
    at.send(PolicyChosen(at=0.0, policy=RANDOM_WIDTHS))
    at.join("d0", "d1", "d2", "d3")
    at.submit(elastic(n_trials=5, epochs=30))
    seen = set()
    while at.open:
        seen.update(widths(at))
        run_epoch(at)
        check_invariants(at.engine)
    assert seen == {1, 2, 3, 4}
    assert at.finish is not None


def test_the_rule_for_shards():
    at = elastic(shards=None, max_width=4, batch_size=128)
    assert shards_of(at, ()) == 4
    assert shards_of(at, (("batch_size", 64),)) == 2
    assert shards_of(at, (("batch_size", 16),)) == 1
    assert shards_of(elastic(shards=None, max_width=2), (("batch_size", 512),)) == 2
    assert shards_of(elastic(shards=8), (("batch_size", 16),)) == 8


def test_a_trial_whose_gang_is_lost_twice_goes_on_alone_and_grows_again_after_an_epoch():
    at = world("d0", "d1", epochs=20)
    run_epoch(at, seconds=5.0)
    run_epoch(at, seconds=5.0)
    seen = widths(at)
    for _ in range(2):
        [dispatch] = at.open.values()
        at.send(at.lost(dispatch, "its members do not reach each other"))
        seen += widths(at)
    assert seen == [2, 2, 1]
    run_epoch(at, seconds=5.0)
    assert widths(at) == [2]
    check_invariants(at.engine)


def test_a_trial_grows_back_onto_a_device_that_has_rested():
    at = world("d0", "d1", epochs=40)
    run_epoch(at, seconds=5.0)
    run_epoch(at, seconds=5.0)
    while not at.engine.state.devices["d1"].backoff_until:
        [dispatch] = at.open.values()
        if len(dispatch.segment.members) == 1:
            run_epoch(at, seconds=5.0)
            continue
        at.at += 2.0
        at.send(at.lost(dispatch, "its lease ran out", ranks=(1,)))
    assert widths(at) == [1]
    run_epoch(at, seconds=5.0)
    assert widths(at) == [2]


def test_a_trial_that_goes_on_waits_for_its_courses_width_as_one_that_begins_does():
    at = world("d0", "d1", "d2", n_trials=1)
    run_epoch(at, seconds=5.0)
    run_epoch(at, seconds=5.0)
    [trial] = at.engine.state.trials.values()
    assert len(trial.members) == 3
    at.engine.state.courses[trial.id] = WidthPlan(2, 3, 2)
    [one, two, _] = [Member(name, 0) for name in ("d0", "d1", "d2")]
    for known in at.engine.state.devices.values():
        known.fences[0] = 0
    assert members_of(at.engine.state, at.engine.extensions, trial, [one], 3) == ()
    assert set(members_of(at.engine.state, at.engine.extensions, trial, [one, two], 3)) == {
        one,
        two,
    }


def test_what_is_free_is_kept_for_the_first_where_the_plan_is_patient():
    at = world("d0", "d1", n_trials=4, max_width=2)
    state = at.engine.state
    first, second = state.ready[:2]
    state.courses = {first: steady(2), second: steady(1)}
    state.widths = {first: 2}
    state.devices["d0"].fences[0] = 0
    free = [Member("d0", 0)]
    state.patient = True
    assert not at.engine._dispatcher._dispatch_waiting(list(free), [], [])
    assert state.ready[:2] == [first, second]
    # What it waits for would never come: one of the two devices has refused its study.
    state.studies[state.trials[first].study].refused["d1"] = "another processor"
    assert at.engine._dispatcher._dispatch_waiting(list(free), [], [])
    assert first in state.ready
    assert second not in state.ready


def test_a_device_that_lost_a_thousand_segments_rests_as_long_as_any():
    at = world("d0")
    at.engine.state.devices["d0"].losses = 5000
    [dispatch] = at.open.values()
    at.send(at.lost(dispatch, "its lease ran out"))
    assert at.engine.state.devices["d0"].backoff_until == at.at + RESTS.longest
