"""Limits of control groups, in trees of files as they are found in the field, and in a real one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest
from penstock.profiling.devices.cgroups import (
    GroupLimits,
    available_memory,
    read_limits,
    usable_cores,
    usable_memory,
)

GIB = 1 << 30
NONE_V1 = "9223372036854771712"
UNIFIED = "30 23 0:26 {root} /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate"
SLICE = "/user.slice/user-1000.slice/user@1000.service/app.slice/run.scope"
POD = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod7.slice/cri-abc.scope"


def v1(number, names, root):
    at = f"/sys/fs/cgroup/{names}"
    return f"{number} 25 0:{number} {root} {at} rw - cgroup cgroup rw,{names}"


def tree(root: Path, group: str, mounts: list[str], files: dict[str, str]) -> Path:
    files = {"proc/self/cgroup": group, "proc/self/mountinfo": "\n".join(mounts)} | files
    for name, text in files.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")
    return root


AT = "sys/fs/cgroup"
LAYOUTS = {
    "systemd, nothing limited": (
        f"0::{SLICE}",
        [UNIFIED.format(root="/")],
        {f"{AT}{SLICE}/memory.max": "max", f"{AT}{SLICE}/cpu.max": "max 100000"},
        GroupLimits(),
    ),
    "systemd, a slice around it is limited": (
        f"0::{SLICE}",
        [UNIFIED.format(root="/")],
        {
            f"{AT}{SLICE}/memory.max": str(8 * GIB),
            f"{AT}/user.slice/memory.max": str(2 * GIB),
            f"{AT}/user.slice/user-1000.slice/memory.high": str(GIB),
            f"{AT}{SLICE}/cpu.max": "400000 100000",
            f"{AT}/user.slice/cpu.max": "150000 100000",
        },
        GroupLimits(GIB, 1.5),
    ),
    "docker, version 2, a namespace of its own": (
        "0::/",
        [UNIFIED.format(root="/")],
        {
            f"{AT}/memory.max": str(GIB),
            f"{AT}/cpu.max": "50000 100000",
            f"{AT}/cpuset.cpus.effective": "2-3,6",
        },
        GroupLimits(GIB, 0.5, frozenset({2, 3, 6})),
    ),
    "docker, version 2, the host's namespace": (
        "0::/system.slice/docker-abc.scope",
        [UNIFIED.format(root="/system.slice/docker-abc.scope")],
        {f"{AT}/memory.max": str(GIB)},
        GroupLimits(GIB),
    ),
    "docker, version 1": (
        "9:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n2:cpuset:/docker/abc\n0::/docker/abc",
        [
            v1(31, "memory", "/docker/abc"),
            v1(32, "cpu,cpuacct", "/docker/abc"),
            v1(33, "cpuset", "/docker/abc"),
        ],
        {
            f"{AT}/memory/memory.limit_in_bytes": str(GIB),
            f"{AT}/cpu,cpuacct/cpu.cfs_quota_us": "250000",
            f"{AT}/cpu,cpuacct/cpu.cfs_period_us": "100000",
            f"{AT}/cpuset/cpuset.cpus": "0-1",
        },
        GroupLimits(GIB, 2.5, frozenset({0, 1})),
    ),
    "docker, version 1, nothing limited": (
        "9:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc",
        [v1(31, "memory", "/docker/abc"), v1(32, "cpu,cpuacct", "/docker/abc")],
        {
            f"{AT}/memory/memory.limit_in_bytes": NONE_V1,
            f"{AT}/memory/memory.stat": f"cache 7\nhierarchical_memory_limit {NONE_V1}",
            f"{AT}/cpu,cpuacct/cpu.cfs_quota_us": "-1",
            f"{AT}/cpu,cpuacct/cpu.cfs_period_us": "100000",
        },
        GroupLimits(),
    ),
    "version 1, the limit is of a group out of sight": (
        "9:memory:/kubepods/pod7/abc",
        [v1(31, "memory", "/kubepods/pod7/abc")],
        {
            f"{AT}/memory/memory.limit_in_bytes": NONE_V1,
            f"{AT}/memory/memory.stat": f"cache 7\nhierarchical_memory_limit {3 * GIB}",
        },
        GroupLimits(3 * GIB),
    ),
    "kubernetes, a pod above its container": (
        f"0::{POD}",
        [UNIFIED.format(root="/")],
        {
            f"{AT}{POD}/memory.max": str(4 * GIB),
            f"{AT}{Path(POD).parent}/memory.max": str(3 * GIB),
            f"{AT}{POD}/cpu.max": "200000 100000",
        },
        GroupLimits(3 * GIB, 2.0),
    ),
    "a container in a container": (
        "0::/../../other",
        [UNIFIED.format(root="/../..")],
        {f"{AT}/memory.max": str(2 * GIB)},
        GroupLimits(2 * GIB),
    ),
    "hybrid: memory in version 1, the rest in 2": (
        "4:memory:/jobs/1\n1:name=systemd:/\n0::/jobs/1",
        [
            v1(31, "memory", "/"),
            "32 25 0:32 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw",
        ],
        {
            f"{AT}/memory/jobs/memory.limit_in_bytes": str(5 * GIB),
            f"{AT}/memory/jobs/1/memory.limit_in_bytes": NONE_V1,
            f"{AT}/unified/jobs/1/cpu.max": "300000 100000",
        },
        GroupLimits(5 * GIB, 3.0),
    ),
    "a group of a like name is another": (
        "9:memory:/docker/abcd",
        [v1(31, "memory", "/docker/abc")],
        {
            f"{AT}/memory/memory.limit_in_bytes": str(GIB),
            f"{AT}/memory/d/memory.limit_in_bytes": "4096",
        },
        GroupLimits(GIB),
    ),
    "files that say nothing": (
        "0::/\nnot a line\n7",
        [UNIFIED.format(root="/"), "30 23", "- cgroup2"],
        {f"{AT}/memory.max": "", f"{AT}/cpu.max": "soon", f"{AT}/cpuset.cpus.effective": "a-b"},
        GroupLimits(),
    ),
    "no control groups": ("", [], {}, GroupLimits()),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_narrowest_limit_around_the_process_counts(tmp_path, layout):
    group, mounts, files, limits = LAYOUTS[layout]
    assert read_limits(tree(tmp_path, group, mounts, files)) == limits


GIVEN = {f"{AT}/memory.max": str(4 * GIB), f"{AT}/memory.current": str(3 * GIB)}


@pytest.mark.parametrize(
    ("free", "files", "available"),
    [
        (8 * GIB, {}, 8 * GIB),
        (8 * GIB, GIVEN, GIB),
        (8 * GIB, GIVEN | {f"{AT}/memory.stat": f"inactive_file {GIB}\nfile 1"}, 2 * GIB),
        (GIB // 2, GIVEN, GIB // 2),
        (8 * GIB, GIVEN | {f"{AT}/memory.current": str(5 * GIB)}, 0),
        (None, {}, None),
        (None, GIVEN, GIB),
    ],
)
def test_what_others_have_cannot_be_taken(tmp_path, free, files, available):
    """In the container's group and on the whole machine; pages of old files are given up."""
    root = tree(tmp_path, "0::/", [UNIFIED.format(root="/")], files)
    if free is not None:
        (root / "proc/meminfo").write_text(f"MemTotal: 9 kB\nMemAvailable: {free // 1024} kB\n")
    assert available_memory(root) == available


def test_version_one_says_it_with_other_names(tmp_path):
    group, mounts, files, _ = LAYOUTS["docker, version 1"]
    at = next(name for name in files if name.endswith("memory.limit_in_bytes"))
    folder = at.rpartition("/")[0]
    files = files | {
        at: str(4 * GIB),
        f"{folder}/memory.usage_in_bytes": str(3 * GIB),
        f"{folder}/memory.stat": f"inactive_file 1\ntotal_inactive_file {GIB}",
    }
    assert available_memory(tree(tmp_path, group, mounts, files)) == 2 * GIB


def test_there_is_never_nothing_left(tmp_path):
    bare = tmp_path / "bare"
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert usable_memory(bare) == physical
    assert usable_cores([4, 1], bare) == (1, 4)
    files = {f"{AT}/cpu.max": "20000 100000", f"{AT}/memory.max": "0"}
    narrow = tree(tmp_path / "narrow", "0::/", [UNIFIED.format(root="/")], files)
    assert usable_memory(narrow) == physical
    assert usable_cores([4, 1], narrow) == (1,)


def test_cores_are_those_of_the_set_and_as_many_as_their_time(tmp_path):
    files = {f"{AT}/cpuset.cpus.effective": "1-3", f"{AT}/cpu.max": "250000 100000"}
    root = tree(tmp_path, "0::/", [UNIFIED.format(root="/")], files)
    assert usable_cores(range(8), root) == (1, 2)
    assert usable_cores([6, 7], root) == (6, 7)  # numbers of another namespace: as they are


def test_a_trainer_in_a_real_control_group_takes_a_part_of_that():
    """5.9 GiB were taken under a limit of 1 GiB."""
    for folder, file in (("memory", "memory.limit_in_bytes"), ("", "memory.max")):
        group = Path("/sys/fs/cgroup", folder, f"penstock-{uuid4().hex[:8]}")
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            (group / file).write_text(str(GIB))
        except OSError:
            group.rmdir()
            continue
        code = (
            "import os, pathlib, sys; pathlib.Path(sys.argv[1]).write_text(str(os.getpid()));"
            "from penstock.tasks.trainer.warm import warm_capacity; print(warm_capacity());"
            "from penstock.profiling.devices.discovery import discover;"
            "from penstock.profiling.devices.nvml import NoNvml;"
            "print(discover(NoNvml('none')).memory)"
        )
        command = [sys.executable, "-P", "-c", code, str(group / "cgroup.procs")]
        hidden = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
        try:
            found = subprocess.run(command, capture_output=True, text=True, check=True, env=hidden)
        finally:
            group.rmdir()
        capacity, memory = map(int, found.stdout.split())
        assert 0 < capacity <= GIB // 4
        assert memory == GIB
        return
    pytest.skip("no control group can be made here")
