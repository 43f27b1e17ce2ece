"""Studies with environments: who may run them, and that a refusal is nobody's fault."""

from __future__ import annotations

from dataclasses import replace

import pytest
from penstock.base.errors import UsageError
from penstock.extensions.environments.forms import check_environment
from penstock.scheduler.model.events import (
    DeviceJoined,
    StudyPaused,
    StudyResumed,
)
from penstock.scheduler.outlook.outlook import outlook
from worlds.drive_world import World, check_invariants, device, spec

ROOT = "rootfs:/r"
NO_BWRAP = "bwrap is not installed on its node"


@pytest.fixture
def world():
    return World()


def joins(world, name, no_rootfs, incarnation="i1"):
    able = replace(device(name), no_rootfs=no_rootfs)
    world.send(DeviceJoined(at=world.at, device=able, incarnation=incarnation))


def study(world):
    return world.engine.state.studies["s-1"]


def refuse(world, reason="rootfs:/r: there is no such folder"):
    [attempt] = world.open.values()
    world.send(world.lost(attempt, reason, refused=True))
    check_invariants(world.engine)
    return world.engine.state.trials[attempt.segment.trial]


@pytest.mark.parametrize("first", ["device", "study"])
def test_a_device_that_cannot_start_roots_gets_none(world, first):
    if first == "device":
        joins(world, "d1", NO_BWRAP)
    world.submit(spec(environment=ROOT, n_trials=1))
    if first == "study":
        joins(world, "d1", NO_BWRAP)
    assert not world.open
    assert study(world).refused == {"d1": f"it cannot start {ROOT}: {NO_BWRAP}"}
    [waiting] = outlook(world.engine, 0.0)["waiting"]
    assert NO_BWRAP in waiting["why"]
    joins(world, "d2", "")
    assert [m.device for d in world.open.values() for m in d.segment.members] == ["d2"]
    world.run()
    assert world.finish.status == "complete"


def test_other_studies_and_other_kinds_run_there(world):
    joins(world, "d1", NO_BWRAP)
    for number, environment in enumerate(["", "venv:/v", "command:c"], 2):
        world.submit(spec(id=f"s-{number}", name=f"s{number}", environment=environment))
    world.run()
    assert all(each.finished_at is not None or not each.refused for each in _studies(world))
    assert not world.engine.state.ready


def _studies(world):
    return world.engine.state.studies.values()


def test_a_device_that_joins_again_is_asked_again(world):
    joins(world, "d1", NO_BWRAP)
    world.submit(spec(environment=ROOT, n_trials=1))
    joins(world, "d1", "", incarnation="i2")
    assert len(world.open) == 1
    assert not study(world).refused


def test_a_refusal_blames_nobody_and_a_resume_lifts_it(world):
    world.join("d1")
    world.submit(spec(environment="venv:/v", n_trials=1))
    for _ in range(60):  # more than losses end a trial, or have a device rest
        trial = refuse(world)
        assert (trial.losses, trial.failures) == (0, 0)
        assert not world.open
        world.send(StudyPaused(at=world.at, study="s-1"))
        world.send(StudyResumed(at=world.at, study="s-1"))
    assert world.engine.state.devices["d1"].losses == 0
    assert "there is no such folder" in study(world).message
    world.run()
    assert world.finish.status == "complete"


def test_a_resume_does_not_lift_what_the_device_announced(world):
    joins(world, "d1", NO_BWRAP)
    world.submit(spec(environment=ROOT, n_trials=1))
    world.send(StudyPaused(at=0.0, study="s-1"))
    world.send(StudyResumed(at=0.0, study="s-1"))
    assert not world.open
    assert "d1" in study(world).refused


def test_a_refusal_leaves_the_other_devices(world):
    world.join("d1", "d2")
    world.submit(spec(environment="venv:/v", n_trials=1))
    trial = refuse(world)
    assert len(world.open) == 1
    world.run()
    assert trial.epoch == 3


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        (None, ""),
        ("venv:/a/b/", "venv:/a/b"),
        ("rootfs:/", "rootfs:/"),
        ("command: apptainer exec --nv /i.sif ", "command:apptainer exec --nv /i.sif"),
    ],
)
def test_an_environment_is_stored_in_one_form(given, stored):
    assert check_environment(given) == stored


@pytest.mark.parametrize(
    "given",
    [
        *("", "venv:", "venv:a", "venv:~/a", "docker:x", "/a", "venv:/a\n", "venv:/" + "a" * 1000),
        *("command:", "command: ", "command:'", "command:''", "command:-x", 3, ["venv:/a"]),
    ],
)
def test_what_is_none_is_refused_with_the_forms(given):
    with pytest.raises(UsageError, match="allowed is venv:/folder, rootfs:/folder or comm") as no:
        check_environment(given)
    assert no.value.field == "environment"
