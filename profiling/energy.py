"""Joules, read where the hardware can be asked: RAPL for CPUs, NVML for GPUs; else None.

Theory of operation. A meter tells what was used since it was last read, or None. RAPL's counter
(Linux' powercap) begins anew after ``max_energy_range_uj``, some minutes of a busy CPU, so it is to
be read every few seconds; where it may have come round more than once, nothing is known. A GPU has
such a counter since Volta, without an end; of an older one the power is read, and its trapezoidal
integral taken. One reading that is lost makes its window None: a part of the energy is not passed
off as all of it, and no model is passed off as a reading.

A device's joules are those of everything that ran on it. They are shared among the trials there by
CPU-seconds, or GPU-seconds; that is an allocation, and reports call it so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from pynvml import NVMLError

from .counters.gpu import start_nvml
from .errors import UsageError

POWERCAP = Path("/sys/class/powercap")
#: Watts that no CPU package draws, and no GPU: a counter that grew faster is not believed.
MOST_OF_A_PACKAGE = 1000.0
MOST_OF_A_GPU = 5000.0
#: Seconds by which two clocks may differ.
SLACK = 0.1
#: Seconds between two readings of power beyond which nothing is known of what was between them.
LONGEST_GAP = 5.0


class Meter(Protocol):
    """The energy of one part of the machine."""

    @property
    def name(self) -> str: ...

    def read(self, now: float) -> float | None:
        """Joules since the last reading (the first: since it was made); None where unknown.

        ``now`` is the time on the caller's steady clock (seconds).
        """
        ...


def wrapped_difference(before: int, after: int, largest: int) -> int:
    """Growth of a counter that goes from ``largest`` to 0, once at most.

    Raises UsageError for readings that such a counter does not give.
    """
    for name, value in (("before", before), ("after", after)):
        if not 0 <= value <= largest:
            raise UsageError.refuse(name, value, f"0 to {largest}")
    return (after - before) % (largest + 1)


class RaplMeter:
    """One powercap zone: a CPU package, or the memory beside it. Raises OSError, ValueError.

    Since Linux 5.10 only root may read them: fine readings tell what a neighbour computes.
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
            return None  # what was used is in the next difference, if that is in time
        seconds, self._at, self._last = now - self._at, now, value
        most = MOST_OF_A_PACKAGE * (seconds + SLACK)
        return joules if joules <= most <= self._largest / 1e6 else None


class GpuMeter:
    """A GPU's own counter of energy (nvmlDeviceGetTotalEnergyConsumption). Raises NVMLError."""

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
        # It begins anew when the driver is loaded again.
        return joules if 0 <= joules <= MOST_OF_A_GPU * (seconds + SLACK) else None

    def _millijoules(self) -> int:
        return int(self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._gpu))


class PowerMeter:
    """The integral of sampled power, by trapezoids: (a + b) / 2 watts for the time between."""

    def __init__(self, name: str, watts: Callable[[], float | None], now: float) -> None:
        self.name = name
        self._watts = watts
        self._at = now
        self._last = watts()

    def read(self, now: float) -> float | None:
        watts = self._watts()
        before, seconds = self._last, now - self._at
        self._at, self._last = now, watts
        if watts is None or before is None or not 0 <= seconds <= LONGEST_GAP:
            return None
        return (before + watts) / 2 * seconds


class Energy:
    """Windows over meters; to be sampled every second or two."""

    def __init__(self, meters: Sequence[Meter]) -> None:
        self._meters = meters
        self._joules: dict[str, float | None] = {}

    def mark(self, now: float) -> None:
        """Begin a window here."""
        self._joules = {
            # Not read here, the next reading would have what was used before the mark too.
            meter.name: None if meter.read(now) is None else 0.0
            for meter in self._meters
        }

    def sample(self, now: float) -> None:
        """Read all meters once."""
        for meter in self._meters:
            used, before = meter.read(now), self._joules.get(meter.name)
            whole = None if used is None or before is None else before + used
            self._joules[meter.name] = whole

    def take(self, now: float) -> dict[str, float | None]:
        """Joules by meter since the mark; None of one that was not read all the time."""
        self.sample(now)
        return dict(self._joules)


def open_meters(
    now: float,
    gpus: Iterable[str] = (),
    *,
    powercap: Path = POWERCAP,
    start: Callable[[], Any] = start_nvml,
) -> tuple[list[Meter], dict[str, str]]:
    """The meters that can be read, and why others cannot (name: reason)."""
    meters: list[Meter] = []
    missing: dict[str, str] = {}
    zones = sorted(filter(_counts, powercap.glob("intel-rapl:*")))
    if not zones:
        missing["RAPL"] = f"{powercap} has no zones: a virtual machine, or a CPU without RAPL"
    for zone in zones:
        try:
            meters.append(RaplMeter(zone, now))
        except (OSError, ValueError) as error:
            missing[zone.name] = f"{error}; since Linux 5.10 only root may read it"
    for uuid in gpus:
        try:
            meters.append(_gpu_meter(uuid, start(), now))
        except NVMLError as error:
            missing[uuid] = f"the driver refuses: {error}"
    return meters, missing


def _counts(zone: Path) -> bool:
    """Packages, and memory, which is in none; the parts of a package and the platform are not."""
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

        nvml.nvmlDeviceGetPowerUsage(gpu)  # neither a counter nor power: the caller hears why
        return PowerMeter(uuid, watts, now)


def shared(joules: float | None, seconds: Mapping[str, float]) -> dict[str, float | None]:
    """A device's ``joules`` among the trials that ran on it, by their seconds of it.

    ``seconds`` are CPU-seconds of a CPU package and its memory, GPU-seconds of a GPU, by trial and
    over the window of the joules. Each gets joules * its seconds / the sum of all; the idle power
    is shared with the rest. None where nothing was read or nothing ran. Raises UsageError.
    """
    for trial, each in seconds.items():
        if not (math.isfinite(each) and each >= 0):
            raise UsageError.refuse(f"seconds[{trial!r}]", each, "0 or more")
    whole = math.fsum(seconds.values())
    if joules is None or not whole:
        return dict.fromkeys(seconds)
    return {trial: joules * each / whole for trial, each in seconds.items()}


def in_words(joules: float | None, device_seconds: float) -> str:
    """What a report says; joules that were shared are called so by who shared them."""
    energy = "energy not measured" if joules is None else f"{joules:,.1f} J"
    return f"{energy}, {device_seconds:,.1f} device-seconds"
