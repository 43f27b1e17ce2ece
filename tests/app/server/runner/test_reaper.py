"""The findings of an inspection of the broker."""

from dataclasses import replace

import pytest
from penstock.app.common.ports import AttemptStatus, LiveDevice, Survey
from penstock.app.server.runner.reaper import (
    CLAIM_TRIPS,
    ENDLESS,
    ENDLESS_GRACE,
    PUBLISH_TIMEOUT,
    REPORT_TIMEOUT,
    Reaper,
)
from penstock.scheduler.model.events import AttemptLost, DeviceDraining, DeviceJoined, DeviceLeft
from worlds.drive_world import World, device, spec

AT = 100.0


@pytest.fixture
def world():
    world = World()
    world.submit(spec(n_trials=1))
    world.join("cpu.a.0")
    return world


def survey(world, seen=None, *, devices=None, incarnation="i1", draining=False):
    names = ["cpu.a.0"] if devices is None else devices
    [attempt] = world.engine.state.attempts.values()
    states = {} if seen is None else {attempt.segment.trial: seen}
    shown = {name: LiveDevice(device(name), incarnation, draining) for name in names}
    return Survey(shown, states, boot="b")


def findings(world, seen=None, at=AT, reaper=None, blind=False, **fields):
    reaper = reaper or Reaper(claim_timeout=6.0)
    shown = survey(world, seen, **fields)
    return list(reaper.findings(shown, world.engine, at, blind=blind))


def fence(world):
    [fence] = world.engine.state.attempts
    return fence


def test_an_attempt_at_work_is_left_alone(world):
    assert findings(world, AttemptStatus(fence(world), "running", ())) == []


@pytest.mark.parametrize(
    ("seen", "reason"),
    [
        (lambda f: None, "the broker has lost its fence"),
        (lambda f: AttemptStatus(None, None, (0,)), "the broker has lost its fence"),
        (lambda f: AttemptStatus(f - 1, "done", (0,)), "its task was never published"),
        (lambda f: AttemptStatus(f + 1, "running", ()), "it was fenced off"),
        (lambda f: AttemptStatus(f, "dispatched", (0,)), "no worker claimed it in 6 s"),
        (lambda f: AttemptStatus(f, "running", (0,)), "its lease ran out"),
    ],
)
def test_a_lost_attempt_is_told_with_the_reason(world, seen, reason):
    [event] = findings(world, seen(fence(world)))
    assert isinstance(event, AttemptLost)
    assert (event.fence, event.reason) == (fence(world), reason)


@pytest.mark.parametrize(
    "seen",
    [
        lambda f: None,
        lambda f: AttemptStatus(f - 1, "x", (0,)),
        lambda f: AttemptStatus(f, "dispatched", (0,)),
    ],
)
def test_what_was_just_dispatched_gets_time_to_arrive(world, seen):
    assert findings(world, seen(fence(world)), at=PUBLISH_TIMEOUT) == []


@pytest.mark.parametrize("seen", [lambda f: None, lambda f: AttemptStatus(f - 1, "x", (0,))])
def test_a_fence_that_is_gone_is_lost_even_while_leases_prove_nothing(world, seen):
    [event] = findings(world, seen(fence(world)), blind=True)
    assert isinstance(event, AttemptLost)


@pytest.mark.parametrize(
    "seen",
    [lambda f: AttemptStatus(f, "running", (0,)), lambda f: AttemptStatus(f, "dispatched", (0,))],
)
def test_after_an_outage_what_expired_meanwhile_is_not_lost_yet(world, seen):
    assert findings(world, seen(fence(world)), devices=[], blind=True) == []


def test_an_attempt_that_is_done_is_lost_only_when_its_report_stays_away(world):
    reaper = Reaper(claim_timeout=6.0)
    done = AttemptStatus(fence(world), "done", (0,))
    assert findings(world, done, reaper=reaper) == []
    assert findings(world, done, at=AT + REPORT_TIMEOUT, reaper=reaper) == []
    [event] = findings(world, done, at=AT + REPORT_TIMEOUT + 1, reaper=reaper)
    assert event.reason == "its last report was lost"


def test_a_worker_far_from_the_broker_has_longer_to_claim(world):
    dispatched = AttemptStatus(fence(world), "dispatched", (0,))
    far = LiveDevice(device("cpu.a.0"), "i1", draining=False, round_trip=0.5)
    shown = replace(survey(world, dispatched), devices={"cpu.a.0": far})
    limit = 6.0 + CLAIM_TRIPS * 0.5
    reaper, engine = Reaper(claim_timeout=6.0), world.engine
    [sent] = [attempt.dispatched_at for attempt in engine.state.attempts.values()]
    assert list(reaper.findings(shown, engine, sent + limit - 0.1)) == []
    [event] = reaper.findings(shown, engine, sent + limit + 0.1)
    assert event.reason == f"no worker claimed it in {limit:g} s"


def test_devices_come_go_and_drain(world):
    running = AttemptStatus(fence(world), "running", ())
    [left] = findings(world, running, devices=[])
    assert isinstance(left, DeviceLeft)
    assert left.reason == "cpu.a.0 stopped answering"
    [joined] = findings(world, running, devices=["cpu.a.0", "cpu.a.1"])
    assert (type(joined), joined.device.name) == (DeviceJoined, "cpu.a.1")
    [draining] = findings(world, running, draining=True)
    assert isinstance(draining, DeviceDraining)


def test_a_device_that_drained_before_it_left_was_stopped(world):
    running = AttemptStatus(fence(world), "running", ())
    world.send(*findings(world, running, draining=True))
    [left] = findings(world, running, devices=[])
    assert left.reason == "its worker was stopped"


def test_a_device_whose_draining_was_too_short_to_be_seen_was_stopped_too(world):
    """An idle worker is gone within the time between two looks."""
    shown = replace(survey(world, devices=[]), stopped=frozenset({"cpu.a.0"}))
    left, *_ = Reaper(claim_timeout=6.0).findings(shown, world.engine, AT)
    assert left.reason == "its worker was stopped"


def test_a_worker_started_anew_joins_anew(world):
    [joined] = findings(world, AttemptStatus(fence(world), "running", ()), incarnation="i2")
    assert joined.incarnation == "i2"


def told_to_stop(world):
    """A reaper that has seen the device drain at ``AT``."""
    reaper, running = Reaper(claim_timeout=6.0), AttemptStatus(fence(world), "running", ())
    world.send(*findings(world, running, draining=True, reaper=reaper))
    assert findings(world, running, draining=True, reaper=reaper) == []

    def after(seconds):
        return findings(world, running, at=AT + seconds, draining=True, reaper=reaper)

    return after


def test_what_has_no_end_in_sight_does_not_hold_up_a_worker_that_was_told_to_stop(world):
    """No epoch of the study was measured: an objective that returns one day."""
    after = told_to_stop(world)
    assert after(ENDLESS_GRACE) == []
    [lost] = after(ENDLESS_GRACE + 0.1)
    assert (lost.reason, lost.fence, lost.ranks) == (ENDLESS, fence(world), ())


@pytest.mark.parametrize(
    ("seconds", "waits"), [(10.0, (5.0, 15.0)), (50.0, ()), (3.0, (5.0,))], ids=str
)
def test_an_epoch_that_ends_in_time_may_end(world, seconds, waits):
    """Epoch 1 took so long; epoch 2 began just before the worker was told to stop."""
    world.at = AT
    [first] = world.open.values()
    world.send(world.epoch(first, 1, seconds=seconds))
    after = told_to_stop(world)
    for moment in waits:
        assert after(moment) == []
    [lost] = after(2 * seconds + 5.1)
    assert lost.reason == ENDLESS
