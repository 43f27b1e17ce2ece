"""Limits: lower the clock of cores, or the power of a GPU, while a trial takes its steps.

Theory of operation. Both are settings of the machine that only root may write. They are changed
only where a user has named the knob. They are lowered from the value that was found, never raised,
and that value is restored after the steps. A trainer can be killed in between. So the first limit
starts a *guard*: a process with a session of its own that is told over a pipe of each limit that is
set or restored. When the pipe closes, however the trainer ended, the guard restores what is still
set. Whatever kills both at once (a power failure, the end of a whole control group) leaves the
limit in place until the machine restarts.

Clocks: Linux' cpufreq (``scaling_max_freq``, kHz). Power: nvmlDeviceSetPowerManagementLimit (mW).
Percentages are of the highest clock that the core has, and of the GPU's default limit.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from pynvml import NVMLError

from ...profiling.base.errors import TrialFailed
from ...profiling.devices.nvml import start_nvml
from ...profiling.knobs.knobs import Value

CPUS = Path("/sys/devices/system/cpu")


@dataclass(frozen=True, slots=True)
class Limit:
    """A setting ``name`` (a cpufreq file or a GPU's UUID), its value before and while limited."""

    name: str
    found: int
    lower: int


@contextmanager
def limited(system: Mapping[str, Value], own: frozenset[int], gpu: str | None) -> Iterator[None]:
    """Apply the limits of ``system`` to the ``own`` cores and to the GPU with this UUID.

    Raises ``TrialFailed`` (system) where the machine has no such setting or refuses it. Nothing
    stays set then.
    """
    limits: list[Limit] = []
    if "cpu_frequency" in system:
        limits += clocks(int(system["cpu_frequency"]), own)
    if "gpu_power" in system:
        limits.append(power(int(system["gpu_power"]), gpu))
    with ExitStack() as held:
        for limit in limits:
            held.enter_context(_held(limit, start_guard()))
        yield


@contextmanager
def _held(limit: Limit, guard: Guard) -> Iterator[None]:
    guard.holds(limit)
    try:
        put(limit.name, limit.lower)
    except TrialFailed:
        guard.released(limit)
        raise
    try:
        yield
    finally:
        put(limit.name, limit.found)
        guard.released(limit)


def clocks(percent: int, own: frozenset[int]) -> list[Limit]:
    """A limit for each of the ``own`` cores. Raises ``TrialFailed`` (system)."""
    limits = []
    for core in sorted(own):
        folder = CPUS / f"cpu{core}" / "cpufreq"
        file = folder / "scaling_max_freq"
        try:
            bounds = [folder / "cpuinfo_min_freq", folder / "cpuinfo_max_freq", file]
            lowest, highest, found = (int(each.read_text()) for each in bounds)
            together = {int(each) for each in (folder / "related_cpus").read_text().split()}
        except (OSError, ValueError) as error:
            raise TrialFailed(
                "system", f"core {core} has no clock that can be set: {error}"
            ) from error
        if not together <= own:
            others = sorted(together - own)
            why = f"core {core} shares its clock with {others}, which are not the slot's"
            raise TrialFailed("system", why)
        limits.append(Limit(str(file), found, max(lowest, min(found, highest * percent // 100))))
    return limits


def power(percent: int, gpu: str | None) -> Limit:
    """The limit of the GPU's power. Raises ``TrialFailed`` (system)."""
    if not gpu:
        raise TrialFailed("system", "the slot has no GPU whose power could be limited")
    try:
        nvml, handle = _gpu(gpu)
        found = int(nvml.nvmlDeviceGetPowerManagementLimit(handle))
        usual = int(nvml.nvmlDeviceGetPowerManagementDefaultLimit(handle))
        lowest = int(nvml.nvmlDeviceGetPowerManagementLimitConstraints(handle)[0])
    except NVMLError as error:
        raise TrialFailed("system", f"the GPU does not report its power limit: {error}") from error
    return Limit(gpu, found, max(lowest, min(found, usual * percent // 100)))


def put(name: str, value: int) -> None:
    """Write one setting. Raises ``TrialFailed`` (system) where that is not permitted."""
    try:
        if name.startswith("/"):
            Path(name).write_text(str(value))
        else:
            nvml, handle = _gpu(name)
            nvml.nvmlDeviceSetPowerManagementLimit(handle, value)
    except (OSError, NVMLError) as error:
        raise TrialFailed("system", f"{name} cannot be set to {value}: {error}") from error


class Guard:
    """The process that restores settings which this one could not."""

    def __init__(self) -> None:
        theirs, self._ours = os.pipe()
        command = [sys.executable, "-m", "penstock.tasks.system.limits"]
        # In a session of its own, signals to the trainer's group do not end it. Nobody waits for it
        # either, since it outlives this process.
        stdin = (os.POSIX_SPAWN_DUP2, theirs, 0)
        os.posix_spawn(command[0], command, os.environ, file_actions=[stdin], setsid=True)
        os.close(theirs)

    def holds(self, limit: Limit) -> None:
        self._tell(f"+ {limit.found} {limit.name}")

    def released(self, limit: Limit) -> None:
        self._tell(f"- {limit.found} {limit.name}")

    def _tell(self, line: str) -> None:
        try:
            os.write(self._ours, f"{line}\n".encode())
        except OSError as error:
            raise TrialFailed("system", f"the guard of limits has ended: {error}") from error


@cache
def start_guard() -> Guard:
    """This process's guard, started when it is first needed."""
    return Guard()


def watch(lines: Iterator[str]) -> None:
    """Follow which settings are changed. When the ``lines`` end, restore what is still changed."""
    held: dict[str, int] = {}
    for line in lines:
        sign, found, name = line.rstrip("\n").split(" ", 2)
        if sign == "+":
            held[name] = int(found)
        else:
            held.pop(name, None)
    for name, value in held.items():
        put(name, value)


def _gpu(uuid: str) -> tuple[Any, Any]:
    nvml = start_nvml()
    return nvml, nvml.nvmlDeviceGetHandleByUUID(uuid)


if __name__ == "__main__":
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)  # it ends when its trainer has ended
    watch(iter(sys.stdin))
