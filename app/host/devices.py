"""Find this machine's devices, given the settings and the user's own CUDA_VISIBLE_DEVICES."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from ...base.errors import UsageError
from ...profiling.devices.device import Device
from ...profiling.devices.discovery import Machine, discover, find_devices
from ...profiling.devices.nvml import NoNvml, Nvml, open_nvml
from .. import extensions
from .settings import Settings


def machine(settings: Settings, nvml: Nvml) -> Machine:
    """Return this machine's hardware, from which devices can be made."""
    return discover(nvml, node=settings.node, visible=os.environ.get("CUDA_VISIBLE_DEVICES"))


def devices_of(settings: Settings, spec: str | None = None) -> tuple[Device, ...]:
    """Return the devices that ``spec`` (default: the settings') denotes here. Raises UsageError."""
    spec = settings.devices if spec is None else spec
    if not isinstance(spec, str):
        raise UsageError.refuse("devices", spec, "auto, cpu:<devices>x<cores>, gpu:all or gpu:0,1")
    # A specification of CPU devices must not wait for a GPU driver.
    nvml = NoNvml("not asked") if spec.startswith("cpu:") else open_nvml()
    devices = find_devices(spec, machine(settings, nvml))
    for each in devices:
        extensions.sharing_of(each)
    return devices


def metered(devices: Iterable[Device], powercap: Path) -> tuple[Device, ...]:
    """Return ``devices`` of this machine with ``unmetered`` filled in: why there is no meter."""
    # Imported here because it loads the driver's library.
    from ...profiling.counters.energy import device_energy

    now = time.monotonic()
    return tuple(
        replace(device, unmetered=device_energy(device.uuid, powercap, now)[1])
        for device in devices
    )
