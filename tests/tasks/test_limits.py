"""Limits of the machine: cores' clocks in a tree as cpufreq has it, a GPU behind a stand-in driver.

Neither was at hand: a virtual machine has no cpufreq, and no GPU's settings were ours to change.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from patience import PATIENCE
from penstock.profiling.base.errors import TrialFailed
from penstock.tasks.system import limits
from penstock.tasks.system.limits import limited
from penstock.tasks.system.system import System
from pynvml import NVMLError, NVMLError_NoPermission

#: As of a laptop's core, kHz.
LOWEST, HIGHEST = 400_000, 3_000_000


def tree(root: Path, cores: frozenset[int], *, now: int = HIGHEST, together: str = "") -> Path:
    for core in cores:
        folder = root / f"cpu{core}" / "cpufreq"
        folder.mkdir(parents=True)
        (folder / "cpuinfo_min_freq").write_text(f"{LOWEST}\n")
        (folder / "cpuinfo_max_freq").write_text(f"{HIGHEST}\n")
        (folder / "scaling_max_freq").write_text(f"{now}\n")
        (folder / "related_cpus").write_text(together or f"{core}\n")
    return root


def clocks(root: Path) -> list[int]:
    return [int(each.read_text()) for each in sorted(root.glob("*/cpufreq/scaling_max_freq"))]


@pytest.fixture
def cores(tmp_path, monkeypatch):
    own = frozenset({0, 1})
    monkeypatch.setattr(limits, "CPUS", tree(tmp_path, own))
    return own


def test_clocks_go_down_while_steps_are_taken_and_back(cores, tmp_path):
    with limited({"cpu_frequency": 60}, cores, None):
        assert clocks(tmp_path) == [1_800_000] * 2
    assert clocks(tmp_path) == [HIGHEST] * 2


def test_a_failing_step_puts_them_back_too(cores, tmp_path):
    with pytest.raises(ZeroDivisionError), limited({"cpu_frequency": 60}, cores, None):
        raise ZeroDivisionError
    assert clocks(tmp_path) == [HIGHEST] * 2


@pytest.mark.parametrize(
    ("found", "percent", "lower"), [(1_000_000, 60, 1_000_000), (HIGHEST, 1, LOWEST)]
)
def test_a_clock_never_goes_up_nor_below_the_lowest(tmp_path, monkeypatch, found, percent, lower):
    monkeypatch.setattr(limits, "CPUS", tree(tmp_path, frozenset({0}), now=found))
    with limited({"cpu_frequency": percent}, frozenset({0}), None):
        assert clocks(tmp_path) == [lower]
    assert clocks(tmp_path) == [found]


def test_a_clock_in_common_with_another_slot_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "CPUS", tree(tmp_path, frozenset({0, 1}), together="0 1 2\n"))
    with pytest.raises(TrialFailed, match=r"shares its clock with \[2\]") as raised:
        limited({"cpu_frequency": 60}, frozenset({0, 1}), None).__enter__()
    assert raised.value.kind == "system"
    assert clocks(tmp_path) == [HIGHEST] * 2


def test_a_machine_without_clocks_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "CPUS", tmp_path)
    with pytest.raises(TrialFailed, match="core 0 has no clock that can be set"):
        limited({"cpu_frequency": 60}, frozenset({0}), None).__enter__()


def test_what_was_set_before_a_refusal_is_put_back(cores, tmp_path, monkeypatch):
    write = limits.put

    def refused(name, value):
        if "cpu1" in name:
            raise TrialFailed("system", f"{name} cannot be set")
        write(name, value)

    monkeypatch.setattr(limits, "put", refused)
    with pytest.raises(TrialFailed, match="cpu1"):
        limited({"cpu_frequency": 60}, cores, None).__enter__()
    assert clocks(tmp_path) == [HIGHEST] * 2


def test_what_cannot_be_written_is_told(tmp_path):
    with pytest.raises(TrialFailed, match="cannot be set to 1"):
        limits.put(str(tmp_path), 1)


def test_a_killed_trainers_limits_are_put_back(tmp_path):
    tree(tmp_path, frozenset({0}))
    code = f"""
import os, signal
from pathlib import Path
from penstock.tasks.system import limits
limits.CPUS = Path({str(tmp_path)!r})
with limits.limited({{"cpu_frequency": 60}}, frozenset({{0}}), None):
    print(limits.CPUS.joinpath("cpu0/cpufreq/scaling_max_freq").read_text(), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""
    # It returns when the guard has ended, too, which holds the same pipes.
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == -9, done.stderr
    assert done.stdout.strip() == "1800000"
    assert clocks(tmp_path) == [HIGHEST]


def test_the_guard_leaves_alone_what_was_put_back(tmp_path):
    one, other = tmp_path / "one", tmp_path / "other"
    one.write_text("1")
    other.write_text("1")
    limits.watch(iter([f"+ 5 {one}\n", f"+ 6 {other}\n", f"- 5 {one}\n"]))
    assert (one.read_text(), other.read_text()) == ("1", "6")


class Driver:
    """One GPU of 300 W at most, 100 W at least; milliwatts, as NVML has them."""

    def __init__(self, *, permits: bool = True) -> None:
        self.limit = 300_000

        def handle(uuid):
            if uuid != "GPU-a":
                raise NVMLError(6)
            return SimpleNamespace(uuid=uuid)

        def put(_, milliwatts):
            if not permits:
                raise NVMLError_NoPermission
            self.limit = milliwatts

        # The library's names.
        self.nvmlDeviceGetHandleByUUID = handle
        self.nvmlDeviceGetPowerManagementLimit = lambda _: self.limit
        self.nvmlDeviceGetPowerManagementDefaultLimit = lambda _: 300_000
        self.nvmlDeviceGetPowerManagementLimitConstraints = lambda _: [100_000, 300_000]
        self.nvmlDeviceSetPowerManagementLimit = put


def test_a_gpu_draws_less_while_steps_are_taken(monkeypatch):
    driver = Driver()
    monkeypatch.setattr(limits, "start_nvml", lambda: driver)
    with limited({"gpu_power": 60}, frozenset(), "GPU-a"):
        assert driver.limit == 180_000
    assert driver.limit == 300_000
    with limited({"gpu_power": 20}, frozenset(), "GPU-a"):
        assert driver.limit == 100_000


@pytest.mark.parametrize(
    ("uuid", "permits", "words"),
    [
        ("GPU-a", False, "cannot be set to 180000"),
        ("GPU-b", True, "does not report its power limit"),
        (None, True, "no GPU"),
        ("", True, "no GPU"),
    ],
)
def test_a_gpu_that_refuses_is_told(monkeypatch, uuid, permits, words):
    driver = Driver(permits=permits)
    monkeypatch.setattr(limits, "start_nvml", lambda: driver)
    with pytest.raises(TrialFailed, match=words) as raised:
        limited({"gpu_power": 60}, frozenset(), uuid).__enter__()
    assert raised.value.kind == "system"
    assert driver.limit == 300_000


def test_a_configuration_with_a_clock_sets_it_around_its_steps(tmp_path, monkeypatch):
    own = frozenset(os.sched_getaffinity(0))
    monkeypatch.setattr(limits, "CPUS", tree(tmp_path, own))
    monkeypatch.setenv("OMP_NUM_THREADS", str(len(own)))
    with System({"cpu_frequency": 80}).stepping():
        assert clocks(tmp_path) == [2_400_000] * len(own)
    assert clocks(tmp_path) == [HIGHEST] * len(own)
    monkeypatch.setenv("OMP_NUM_THREADS", str(len(own) + 1))
    with pytest.raises(TrialFailed, match="no core is the trial's own"):
        System({"cpu_frequency": 80}).stepping().__enter__()
