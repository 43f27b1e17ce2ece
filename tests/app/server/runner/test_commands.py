"""Operators' commands on devices as events: what is meant, and what is refused with the reason."""

import math

import pytest
from penstock.app.server.runner.commands import answer, to_event
from penstock.base.errors import UsageError
from penstock.scheduler.model.events import DevicesGivenBack, DevicesTakenOut
from worlds.drive_world import World, spec

NAMES = ("cpu.left.0", "cpu.left.1", "cuda.right.1f")


@pytest.fixture
def world():
    """Three devices; a trial runs on the first."""
    world = World()
    world.submit(spec(n_trials=1))
    world.join(*NAMES)
    return world


def event(world, **body):
    return to_event(body, world.engine, 10.0, {}.__getitem__)


def test_devices_are_named_by_unique_prefixes_each_once(world):
    drained = event(world, kind="drain", devices=["cuda", "cpu.left.0", "cuda.r"], within=None)
    assert drained == DevicesTakenOut(at=10.0, devices=("cuda.right.1f", "cpu.left.0"))
    assert answer(drained, world.engine.state) == {"devices": ("cuda.right.1f", "cpu.left.0")}


def test_a_whole_name_is_meant_even_where_another_begins_with_it(world):
    world.join("cpu.left.10")
    assert event(world, kind="drain", devices=["cpu.left.1"]).devices == ("cpu.left.1",)


def test_a_deadline_counts_from_now(world):
    assert event(world, kind="drain", devices=["cuda"], within=2).deadline == 12.0
    assert event(world, kind="drain", devices=["cuda"], within=0).deadline == 10.0


def test_the_scheduler_chooses_what_is_freed_idle_ones_first(world):
    freed = event(world, kind="free", n=2, within=5.0)
    assert freed == DevicesTakenOut(at=10.0, devices=NAMES[1:], deadline=15.0)


def test_only_what_was_drained_is_given_back_also_when_it_has_left(world):
    world.send(event(world, kind="drain", devices=["cuda"]))
    given = event(world, kind="undrain", devices=["cu"])
    assert given == DevicesGivenBack(at=10.0, devices=("cuda.right.1f",))
    with pytest.raises(UsageError, match=r"no drained device 'cpu'; there is cuda.right.1f$"):
        event(world, kind="undrain", devices=["cpu"])
    del world.engine.state.devices["cuda.right.1f"]
    assert event(world, kind="undrain", devices=["cu"]) == given


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"kind": "drain", "devices": ["gpu"]}, "no device 'gpu'; there is cpu.left.0, cpu.left.1"),
        ({"kind": "drain", "devices": [""]}, "no device ''"),
        ({"kind": "drain", "devices": ["cpu"]}, "may be any of cpu.left.0, cpu.left.1"),
        ({"kind": "drain", "devices": []}, "devices = [] is refused"),
        ({"kind": "drain", "devices": [3]}, "devices.0: Input should be a valid string"),
        ({"kind": "drain"}, "devices: Missing required argument"),
        ({"kind": "drain", "devices": ["cuda"], "within": -1}, "within: Input should be greater"),
        (
            {"kind": "drain", "devices": ["cuda"], "within": True},
            "within: Input should be a valid number",
        ),
        ({"kind": "undrain", "devices": ["cuda"]}, "no drained device 'cuda'; there is none"),
        ({"kind": "free", "n": 4, "within": 1}, "N = 4 is refused: allowed is 1 to 3"),
        ({"kind": "free", "n": 0, "within": 1}, "N = 0 is refused"),
        ({"kind": "free", "n": 1.5, "within": 1}, "n: Input should be a valid integer"),
        ({"kind": "free", "n": 1, "within": math.inf}, "within: Input should be less than or"),
        ({"kind": "free", "n": 1}, "within: Missing required argument"),
    ],
)
def test_what_cannot_be_is_refused_with_what_can(world, body, words):
    with pytest.raises(UsageError) as refused:
        event(world, **body)
    assert words in str(refused.value)


def test_what_is_drained_already_cannot_be_freed(world):
    world.send(event(world, kind="free", n=2, within=1))
    with pytest.raises(UsageError, match="1 to 1, the devices that are not drained yet"):
        event(world, kind="free", n=2, within=1)
    world.send(event(world, kind="free", n=1, within=1))
    with pytest.raises(UsageError, match="there is no device to free"):
        event(world, kind="free", n=1, within=1)


def test_of_many_names_the_first_are_listed(world):
    world.join(*(f"cpu.many.{n}" for n in range(20)))
    with pytest.raises(UsageError, match=r"cpu.many.17 and 10 more \(penstock devices\)"):
        event(world, kind="drain", devices=["cpu.many."])
