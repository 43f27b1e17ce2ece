"""The choice of devices to free: the idle ones, then those that lose least."""

from penstock.scheduler.model.decisions import Member, Segment
from penstock.scheduler.model.events import DeviceDraining, DevicesTakenOut
from penstock.scheduler.outlook.drain_choice import choose_devices, drainable
from penstock.scheduler.state.state import Attempt
from worlds.drive_world import World, spec

NAMES = [f"cpu.a.{n}" for n in range(3)]


def busy(n_trials=3, slots=1):
    world = World()
    world.submit(spec(n_trials=n_trials))
    world.join(*NAMES, slots=slots)
    return world


def begun(world, **ago):
    """Move the start of the segment on device 0 back by the seconds given as ``_0``, and so on."""
    for attempt in world.engine.state.attempts.values():
        [member] = attempt.segment.members
        attempt.dispatched_at = attempt.began = -ago.get(f"_{member.device[-1]}", 0.0)
    return world.engine


def test_idle_ones_come_first_and_ties_go_by_name():
    engine = busy(n_trials=1).engine
    assert choose_devices(engine, 1, at=0.0, within=9.0) == ("cpu.a.1",)
    assert choose_devices(engine, 3, at=0.0, within=9.0) == ("cpu.a.1", "cpu.a.2", "cpu.a.0")


def test_where_no_epoch_ends_in_time_the_one_that_has_just_begun_loses_least():
    engine = begun(busy(), _0=3.0, _1=1.0, _2=2.0)
    assert choose_devices(engine, 2, at=0.0, within=0.0) == ("cpu.a.1", "cpu.a.2")


def test_an_epoch_that_ends_before_the_deadline_loses_nothing():
    engine = begun(busy(), _0=3.0, _1=1.0, _2=2.0)
    assert choose_devices(engine, 1, at=0.0, within=1.5) == ("cpu.a.1",)
    engine.state.costs.observe_epoch("s-1", "s-1-0000", 4.0, 1)
    assert choose_devices(engine, 1, at=0.0, within=1.5) == ("cpu.a.0",)


def test_epochs_that_were_accepted_are_not_lost():
    engine = begun(busy(), _0=3.0, _1=1.0, _2=2.0)
    next(iter(engine.state.attempts.values())).began = -0.1
    assert choose_devices(engine, 1, at=0.0, within=0.0) == ("cpu.a.0",)


def test_a_gang_is_lost_once_so_the_rest_of_it_comes_for_nothing():
    """Stopping either of two lone trials would be cheaper than the gang; both are not."""
    world = busy(n_trials=1)
    engine, state = world.engine, world.engine.state
    world.join("cpu.a.3")
    [(fence, lone)] = state.attempts.items()
    lone.dispatched_at = lone.began = -5.0
    members = (Member("cpu.a.1", 0), Member("cpu.a.2", 0))
    gang = Segment("s-1-0000", 1, 1, fence + 1, members)
    state.attempts[fence + 1] = Attempt("1.0", "s-1", gang, -1.0, began=-1.0)
    for member in members:
        state.devices[member.device].fences[0] = fence + 1
    assert choose_devices(engine, 3, at=0.0, within=0.0) == ("cpu.a.3", "cpu.a.1", "cpu.a.2")
    lone.began = -1.5
    assert choose_devices(engine, 2, at=0.0, within=0.0) == ("cpu.a.3", "cpu.a.0")


def test_what_drains_already_is_not_there_to_be_freed():
    world = busy()
    world.send(DeviceDraining(at=0.0, device="cpu.a.0"))
    world.send(DevicesTakenOut(at=0.0, devices=("cpu.a.2",)))
    assert drainable(world.engine.state) == ["cpu.a.1"]
