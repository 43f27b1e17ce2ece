"""Energy in joules, if the hardware measures it: RAPL for CPUs, NVML for GPUs; else None.

Theory of operation. A meter returns the energy used since its last reading, or None. RAPL's counter
(Linux' powercap) wraps around at ``max_energy_range_uj``, which a busy CPU reaches within minutes,
so it must be read more often than that. If it may have wrapped more than once since the last
reading, the result is None. GPUs since Volta have an energy counter, which does not wrap. For an
older GPU the power is sampled, and its trapezoidal integral is taken. If one reading in a window is
lost, the energy of the window is None: a part of the energy is never reported as all of it, and an
estimate is never reported as a measurement.

A meter counts everything that ran on its part of the machine. A trial's joules are a part of that,
allocated by CPU-seconds or GPU-seconds (``Energy``).
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage
from typing import Any, Protocol

from pynvml import NVMLError

from ...base.errors import UsageError
from ..devices.nvml import start_nvml
from .zeus import zeus_meters

#: Watts that no CPU package, and no GPU, exceeds. A counter that grows faster is not trusted.
MAX_PACKAGE_WATTS = 1000.0
MAX_GPU_WATTS = 5000.0
#: Seconds by which two clocks may differ.
SLACK = 0.1
#: Longest time between two readings of power (seconds) for which the energy is integrated.
MAX_GAP = 5.0


class Meter(Protocol):
    """The energy of one part of the machine."""

    @property
    def name(self) -> str: ...

    def read(self, now: float) -> float | None:
        """Return the joules since the last reading, or since the meter was made; None if unknown.

        ``now`` is the time on the caller's steady clock (seconds).
        """
        ...


def wrapped_difference(before: int, after: int, largest: int) -> int:
    """Return the growth of a counter that wraps from ``largest`` to 0 at most once.

    Raises ``UsageError`` for readings that such a counter does not give.
    """
    for name, value in (("before", before), ("after", after)):
        if not 0 <= value <= largest:
            raise UsageError.refuse(name, value, f"0 to {largest}")
    return (after - before) % (largest + 1)


class RaplMeter:
    """One powercap zone: a CPU package, or the memory next to it.

    Raises ``OSError`` or ``ValueError`` if it cannot be read. From Linux 5.10 on only root may read
    it, because fine readings reveal what other processes compute.
    """

    def __init__(self, zone: Path, now: float) -> None:
        self.name = f"{zone.name} {(zone / 'name').read_text().strip()}"
        self._file = zone / "energy_uj"
        self._largest = int((zone / "max_energy_range_uj").read_text())
        self._at = now
        self._last = int(self._file.read_text())

    def read(self, now: float) -> float | None:
        try:
            value = int(self._file.read_text())
            joules = wrapped_difference(self._last, value, self._largest) / 1e6
        except (OSError, ValueError, UsageError):
            return None  # the next reading includes this energy, if it is in time
        seconds, self._at, self._last = now - self._at, now, value
        limit = MAX_PACKAGE_WATTS * (seconds + SLACK)
        return joules if joules <= limit <= self._largest / 1e6 else None


class GpuMeter:
    """A GPU's own energy counter (nvmlDeviceGetTotalEnergyConsumption). Raises ``NVMLError``."""

    def __init__(self, uuid: str, nvml: Any, now: float) -> None:
        self.name = uuid
        self._nvml = nvml
        self._gpu = nvml.nvmlDeviceGetHandleByUUID(uuid)
        self._at = now
        self._last = self._millijoules()

    def read(self, now: float) -> float | None:
        try:
            value = self._millijoules()
        except NVMLError:
            return None
        joules, seconds = (value - self._last) / 1e3, now - self._at
        self._at, self._last = now, value
        # It restarts at zero when the driver is loaded again.
        return joules if 0 <= joules <= MAX_GPU_WATTS * (seconds + SLACK) else None

    def _millijoules(self) -> int:
        return int(self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._gpu))


class PowerMeter:
    """The integral of sampled power, by trapezoids: (a + b) / 2 watts between two samples."""

    def __init__(self, name: str, watts: Callable[[], float | None], now: float) -> None:
        self.name = name
        self._watts = watts
        self._at = now
        self._last = watts()

    def read(self, now: float) -> float | None:
        watts = self._watts()
        before, seconds = self._last, now - self._at
        self._at, self._last = now, watts
        if watts is None or before is None or not 0 <= seconds <= MAX_GAP:
            return None
        return (before + watts) / 2 * seconds


@dataclass(frozen=True, slots=True)
class Mark:
    """A process's energy at one moment, to be compared with a later one.

    ``joules`` are the process's own since the start, and ``lost`` is the number of failed readings.
    ``whole`` is False if a reading failed at this moment, so that the next one will include joules
    from before it.
    """

    joules: float
    lost: int
    whole: bool


class Energy:
    """The energy that a device's ``meters`` count, and a process's part of it.

    ``sample`` should be called each second.

    If ``use`` is given, it returns CPU-seconds of the process and of the whole machine. The
    process's part between two samples is joules * own / all CPU-seconds, so idle power is allocated
    as well. The machine's CPU-seconds come in ticks, and joules are allocated at the next tick.
    Parts in short windows are therefore coarse, while their sum is not. If ``use`` is None, as for
    a GPU, each reading's joules are divided equally among the trials at work on the device
    (``share``), so that they are allocated by GPU-seconds.
    """

    def __init__(
        self, meters: Sequence[Meter], use: Callable[[], tuple[float, float]] | None
    ) -> None:
        self._meters = meters
        self._use = use
        self._joules = 0.0
        self._lost = 0
        self._trials = 1
        # The device's joules that are not allocated yet, and CPU-seconds at the last allocation.
        self._pending = 0.0
        self._last_used: tuple[float, float] | None = None

    def sample(self, now: float) -> Mark:
        """Read all meters at ``now`` (seconds of a steady clock), and return the new mark."""
        read = [meter.read(now) for meter in self._meters]
        consumed = math.fsum(joules for joules in read if joules is not None)
        if self._use is None:
            self._joules += consumed / self._trials
        else:
            self._allocate(consumed, self._use())
        failed = read.count(None)
        self._lost += failed
        return Mark(self._joules, self._lost, not failed)

    def share(self, trials: int, now: float) -> None:
        """Divide the joules from ``now`` on among ``trials`` trials, unless ``use`` is given."""
        if self._use is None:
            self.sample(now)
            self._trials = trials

    def between(self, begin: Mark, end: Mark) -> float | None:
        """Return the process's joules from ``begin`` to ``end``; None if a reading was lost."""
        if not begin.whole or begin.lost != end.lost:
            return None
        return end.joules - begin.joules

    def _allocate(self, consumed: float, used: tuple[float, float]) -> None:
        if self._last_used is None:  # joules drawn before the first sample are not allocated
            self._last_used = used
            return
        self._pending += consumed
        own, all_ = used[0] - self._last_used[0], used[1] - self._last_used[1]
        if all_ > 0:
            # Only ``all_`` comes in ticks, so a part may seem larger than the whole.
            self._joules += self._pending * min(1.0, own / all_)
            self._pending, self._last_used = 0.0, used


def cpu_seconds(stat: Path = Path("/proc/stat")) -> tuple[float, float]:
    """Return CPU-seconds of this process and its ended children, and of everything on the machine.

    The latter come in ticks (usually 10 ms), without idle time, waits and time taken by a
    hypervisor (proc(5), ``/proc/stat``). Raises ``OSError``.
    """
    ticks = [int(each) for each in stat.read_text().split("\n", 1)[0].split()[1:8]]
    user, nice, system, _, _, irq, softirq = ticks
    usages = [getrusage(target) for target in (RUSAGE_SELF, RUSAGE_CHILDREN)]
    own = math.fsum(each.ru_utime + each.ru_stime for each in usages)
    return own, (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def device_energy(gpu: str | None, powercap: Path, now: float) -> tuple[Energy | None, str]:
    """Return the energy of the GPU with this UUID, or of the CPUs; or None and the reason.

    All meters must be readable, since some of them alone do not measure the device.
    """
    if gpu:
        meters, missing = open_meters(now, (gpu,), powercap=None)
    else:
        meters, missing = open_meters(now, powercap=powercap)
    if not gpu:
        try:
            cpu_seconds()
        except (OSError, ValueError) as error:
            missing["CPU-seconds"] = str(error)
    if missing:
        return None, "; ".join(f"{name}: {reason}" for name, reason in missing.items())
    return Energy(meters, None if gpu else cpu_seconds), ""


def open_meters(
    now: float,
    gpus: Iterable[str] = (),
    *,
    powercap: Path | None,
    start: Callable[[], Any] = start_nvml,
) -> tuple[list[Meter], dict[str, str]]:
    """Return the meters that can be read, and the reasons why others cannot (name: reason).

    The CPUs' meters are left out if ``powercap`` is None. ``start`` initialises NVML.
    """
    meters: list[Meter] = []
    missing: dict[str, str] = {}
    zones = sorted(filter(_is_counted, powercap.glob("intel-rapl:*"))) if powercap else []
    if powercap and not zones:
        missing["RAPL"] = f"{powercap} has no zones: a virtual machine, or a CPU without RAPL"
    for zone in zones:
        try:
            meters.append(RaplMeter(zone, now))
        except (OSError, ValueError) as error:
            missing[zone.name] = f"{error}; since Linux 5.10 only root may read it"
    if zones and not meters:
        through_zeus, reason = zeus_meters()
        meters += through_zeus
        missing = {"Zeus": reason, **missing} if reason else {}
    for uuid in gpus:
        try:
            meters.append(_gpu_meter(uuid, start(), now))
        except NVMLError as error:
            missing[uuid] = f"the driver refuses: {error}"
    return meters, missing


def _is_counted(zone: Path) -> bool:
    """Return True for the zones that are summed: packages, and memory outside of packages.

    The other zones are parts of a package, or the whole platform, and would be counted twice.
    """
    try:
        kind = (zone / "name").read_text().strip()
    except OSError:
        return False
    return kind.startswith("package-") or kind == "dram"


def _gpu_meter(uuid: str, nvml: Any, now: float) -> Meter:
    try:
        return GpuMeter(uuid, nvml, now)
    except NVMLError:
        gpu = nvml.nvmlDeviceGetHandleByUUID(uuid)

        def watts() -> float | None:
            try:
                return float(nvml.nvmlDeviceGetPowerUsage(gpu)) / 1e3
            except NVMLError:
                return None

        nvml.nvmlDeviceGetPowerUsage(gpu)  # raises if there is neither a counter nor power
        return PowerMeter(uuid, watts, now)
