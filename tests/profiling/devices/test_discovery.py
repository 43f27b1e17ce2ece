"""Device specs mean what is written, on the machine that is there."""

from __future__ import annotations

import os

import pytest
from penstock.base.errors import UsageError
from penstock.profiling.devices import discovery
from penstock.profiling.devices.discovery import Gpu, Machine, discover, find_devices
from penstock.profiling.devices.nvml import NoNvml

GIB = 1 << 30
CPU = Machine("host", (0, 1, 2, 5), 8 * GIB, ())
GPU = Machine(
    "host", (0, 1, 2, 3), 8 * GIB,
    (Gpu("GPU-aaaaaaaa-1", "H200", 141 * GIB), Gpu("GPU-bbbbbbbb-2", "H200", 141 * GIB)),
)  # fmt: skip


class TwoGpus:
    """A driver's answers."""

    def count(self):
        return 2

    def uuid(self, index):
        return ("GPU-aa", "GPU-ab")[index]

    def name(self, index):
        return "H200"

    def memory(self, index):
        return 141 * GIB


def cores(spec, machine=CPU):
    return [device.cores for device in find_devices(spec, machine)]


def test_two_devices_of_one_core_are_not_one_of_two():
    assert cores("cpu:2x1") == [(0,), (1,)]
    assert cores("cpu:1x2") == [(0, 1)]


def test_names_say_kind_node_and_cores():
    assert [d.name for d in find_devices("cpu:1x4", CPU)] == ["cpu.host.0-2_5"]
    assert [d.name for d in find_devices("cpu:2x1", CPU)] == ["cpu.host.0", "cpu.host.1"]
    assert [d.name for d in find_devices("gpu:all", GPU)] == [
        "cuda.host.aaaaaaaa",
        "cuda.host.bbbbbbbb",
    ]


def test_a_star_gives_slots():
    assert [device.slots for device in find_devices("cpu:2x1*3", CPU)] == [3, 3]
    assert [device.slots for device in find_devices("gpu:0*2", GPU)] == [2]


def test_a_device_has_lanes_of_seats():
    [device] = find_devices("gpu:0*2x4", GPU)
    assert (device.slots, device.seats, device.lanes) == (8, 4, 2)
    assert [device.lane(slot) for slot in range(8)] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert [(d.slots, d.lanes) for d in find_devices("cpu:1x2*1x4", CPU)] == [(4, 1)]
    assert [(d.slots, d.seats) for d in find_devices("auto*1x3", CPU)] == [(3, 3)] * 4


def test_a_star_with_one_number_gives_lanes_of_one_seat():
    [device] = find_devices("gpu:0*2", GPU)
    assert (device.slots, device.seats, device.lanes) == (2, 1, 2)
    assert [device.lane(slot) for slot in range(2)] == [0, 1]


def test_memory_is_shared_by_cores():
    assert [device.memory for device in find_devices("cpu:1x1", CPU)] == [2 * GIB]
    assert [d.memory for d in find_devices("cpu:1x1", Machine("host", (0,), None, ()))] == [None]


def test_auto_is_every_gpu_or_else_every_core():
    assert [device.uuid for device in find_devices("auto", GPU)] == [
        "GPU-aaaaaaaa-1",
        "GPU-bbbbbbbb-2",
    ]
    assert cores("auto") == [(0,), (1,), (2,), (5,)]


def test_gpus_share_the_cores_evenly():
    assert cores("gpu:all", GPU) == [(0, 1), (2, 3)]
    assert cores("gpu:1", GPU) == [(0, 1, 2, 3)]
    assert cores("gpu:all", Machine("host", (7,), None, GPU.gpus)) == [(7,), (7,)]


@pytest.mark.parametrize(
    ("spec", "machine"),
    [
        ("", CPU), ("tpu:all", CPU), ("cpu:2", CPU), ("cpu:x1", CPU), ("cpu:0x1", CPU),
        ("cpu:1x0", CPU), ("cpu:5x1", CPU), ("cpu:2x3", CPU), ("gpu:all", CPU), ("gpu:2", GPU),
        ("gpu:0,2", GPU), ("gpu:-1", GPU), ("cpu:1x1*", CPU),
        ("cpu:1x1*2x", CPU), ("cpu:1x1*x2", CPU),
    ],
)  # fmt: skip
def test_what_the_machine_does_not_have_is_refused_with_what_it_has(spec, machine):
    with pytest.raises(UsageError) as refused:
        find_devices(spec, machine)
    assert f"devices = {spec!r}" in str(refused.value)
    assert str(machine) in str(refused.value)


@pytest.mark.parametrize("spec", ["cpu:1x1*0", "cpu:1x1*65", "cpu:1x1*2x0", "cpu:1x1*4x17"])
def test_slots_have_a_range(spec):
    with pytest.raises(UsageError, match="1 to 64 slots"):
        find_devices(spec, CPU)


def test_this_machine_is_what_this_process_may_use():
    machine = discover(NoNvml("none"))
    assert set(machine.cores) <= os.sched_getaffinity(0)
    assert machine.cores
    assert machine.memory > GIB // 4
    assert machine.gpus == ()
    assert discover(NoNvml("none"), node="other").node == "other"


@pytest.mark.parametrize(
    ("visible", "seen"),
    [
        (None, ["GPU-aa", "GPU-ab"]),
        ("", []),
        ("1", ["GPU-ab"]),
        ("1,0", ["GPU-ab", "GPU-aa"]),
        ("GPU-ab", ["GPU-ab"]),
        ("GPU-a", []),
        ("0,7,1", ["GPU-aa"]),
        ("-1", []),
    ],
)
def test_gpus_hidden_from_cuda_are_not_there(visible, seen):
    assert [gpu.uuid for gpu in discover(TwoGpus(), visible=visible).gpus] == seen


def test_what_a_control_group_leaves_is_all_there_is(monkeypatch):
    monkeypatch.setattr(discovery, "usable_cores", lambda cores: tuple(sorted(cores))[:1])
    monkeypatch.setattr(discovery, "usable_memory", lambda: GIB)
    machine = discover(NoNvml("none"))
    assert len(machine.cores) == 1
    assert machine.memory == GIB


def test_a_hosts_name_becomes_fit_for_queue_names(monkeypatch):
    monkeypatch.setattr(discovery.socket, "gethostname", lambda: "gpu_07.lab.example")
    assert discovery.node_name() == "gpu-07-lab-example"
