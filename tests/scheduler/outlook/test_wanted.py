"""The number of further devices that could work, as the engine itself counts them."""

from __future__ import annotations

import copy

import pytest
from penstock.app.extensions import PLUGS
from penstock.scheduler.engine.engine import Engine
from penstock.scheduler.model.events import DevicesTakenOut, StudyPaused
from penstock.scheduler.model.study import StrategySpec
from penstock.scheduler.outlook.autoscale import device_demand
from worlds.drive_world import World, spec


@pytest.fixture
def world():
    return World()


def wanted(world, most=256):
    before = copy.deepcopy(world.engine.state)
    found = device_demand(Engine(copy.deepcopy(world.engine.state), plugs=PLUGS), most)
    assert world.engine.state == before
    return found


def test_without_a_study_none_is_wanted(world):
    assert wanted(world) == 0
    world.join("cpu.a.0")
    assert wanted(world) == 0


@pytest.mark.parametrize("sampler", ["random", "tpe"])
def test_each_trial_that_could_begin_wants_one_also_before_any_has_joined(world, sampler):
    world.submit(spec(n_trials=9, sampler=sampler))
    assert wanted(world) == 9
    world.join("cpu.a.0", "cpu.a.1")
    assert wanted(world) == 7
    assert wanted(world, most=5) == 5


def test_a_trial_that_waits_for_the_rung_of_others_wants_none(world):
    world.submit(spec(StrategySpec("halving", max_epochs=9), n_trials=3))
    world.join("cpu.a.0", "cpu.a.1", "cpu.a.2")
    assert wanted(world) == 0
    world.run_segment()
    world.run_segment()
    assert len(world.open) == 1 and wanted(world) == 0  # two slots are idle as it is


@pytest.mark.extension("memory")
def test_devices_count_as_shared_as_those_that_are_there(world):
    world.submit(spec(n_trials=9))
    world.join("cpu.a.0", slots=2)
    assert wanted(world) == 8  # nobody knows yet whether sharing pays


def test_what_a_drained_device_did_another_could_do(world):
    world.submit(spec(n_trials=1))
    world.join("cpu.a.0")
    assert wanted(world) == 0
    world.send(DevicesTakenOut(at=1.0, devices=("cpu.a.0",)))
    world.run_segment()
    assert wanted(world) == 1


def test_a_paused_study_wants_none(world):
    world.submit(spec(n_trials=9))
    world.send(StudyPaused(at=1.0, study="s-1"))
    assert wanted(world) == 0


def test_width_is_no_reason_for_a_device(world):
    world.submit(spec(n_trials=2, max_width=4, shards=4, contract="torch"))
    world.join("cpu.a.0", "cpu.a.1")
    assert wanted(world) == 0
