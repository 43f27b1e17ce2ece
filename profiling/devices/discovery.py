"""Discovery of the devices that this machine has, from a spec as users write it.

``cpu:2x1`` is two devices of one core, ``cpu:1x2`` is one device of two cores. ``gpu:all`` is every
GPU, ``gpu:0,1`` two of them by number. ``auto`` is every GPU with two slots each, or one device a
core if there is no GPU. ``*2`` at the end gives every device two slots, so two trials may share it
where that pays. ``*2x4`` gives every device two lanes of four slots, in which trials take turns.

A machine's resources are those that this process may use: the cores that it is bound to, but no
more than its control group allows, and the GPUs that ``CUDA_VISIBLE_DEVICES`` leaves visible.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...base.errors import UsageError
from .cgroups import usable_cores, usable_memory
from .device import Device
from .nvml import Nvml
from .processor import model_name

MAX_SLOTS = 64
#: A second trial stays on a GPU only if a gain was measured (docs/policies.md).
AUTO_GPU_SLOTS = 2
SPEC_FORMS = (
    "auto, cpu:<devices>x<cores>, gpu:all or gpu:<numbers>, each with *<slots> or *<lanes>x<seats>"
    " if wanted"
)

_SPEC = re.compile(
    # The number of digits is limited: Python refuses to read numbers of some thousand digits.
    r"(?P<kind>auto|cpu:(?P<devices>\d{1,9})x(?P<each>\d{1,9})|gpu:(?P<gpus>all|\d{1,9}(?:,\d{1,9})*))"
    r"(?:\*(?P<lanes>\d{1,9})(?:x(?P<seats>\d{1,9}))?)?"
)


@dataclass(frozen=True, slots=True)
class DeviceSpec:
    """A device spec in parts.

    ``kind`` is auto, cpu or gpu. For CPUs it means ``count`` devices of ``cores`` each. For GPUs
    ``gpus`` is *all*, or numbers with commas. ``lanes`` is None if the spec does not say.
    """

    kind: str
    count: int
    cores: int
    gpus: str
    lanes: int | None
    seats: int = 1

    @property
    def slots(self) -> int:
        """The number of trials that a device can hold."""
        return (self.lanes or 1) * self.seats


@dataclass(frozen=True, slots=True)
class Gpu:
    uuid: str
    model: str
    memory: int


@dataclass(frozen=True, slots=True)
class Machine:
    """Resources that this process may use here. ``memory`` is in bytes, None if not known."""

    node: str
    cores: tuple[int, ...]
    memory: int | None
    gpus: tuple[Gpu, ...]

    def __str__(self) -> str:
        return f"{len(self.cores)} CPU cores and {len(self.gpus)} GPUs"


def discover(nvml: Nvml, *, node: str | None = None, visible: str | None = None) -> Machine:
    """Return this machine's resources.

    ``visible`` is the value of ``CUDA_VISIBLE_DEVICES``; with None, every GPU is visible.
    """
    gpus = tuple(
        Gpu(nvml.uuid(index), nvml.name(index), nvml.memory(index)) for index in range(nvml.count())
    )
    cores = usable_cores(os.sched_getaffinity(0))
    return Machine(node or node_name(), cores, usable_memory(), _visible(gpus, visible))


def parse_spec(spec: str, allowed: str) -> DeviceSpec:
    """Split ``spec`` into its parts.

    Raises ``UsageError`` for a malformed spec, naming ``allowed``, and for too many slots.
    """
    form = _SPEC.fullmatch(spec.strip())
    if form is None:
        raise UsageError.refuse("devices", spec, allowed)
    lanes = None if form["lanes"] is None else int(form["lanes"])
    seats = 1 if form["seats"] is None else int(form["seats"])
    if lanes is not None and not 1 <= lanes * seats <= MAX_SLOTS:
        raise UsageError.refuse(
            "devices",
            spec,
            f"*<slots> or *<lanes>x<seats>, with 1 to {MAX_SLOTS} slots or seats a device",
        )
    kind = form["kind"].partition(":")[0]
    count, each = int(form["devices"] or 0), int(form["each"] or 1)
    return DeviceSpec(kind, count, each, form["gpus"] or "", lanes, seats)


def find_devices(spec: str, machine: Machine) -> tuple[Device, ...]:
    """Return the devices that ``spec`` means on ``machine``.

    Raises ``UsageError``, which names the spec and the machine's resources.
    """
    form = parse_spec(spec, f"{SPEC_FORMS}; this machine has {machine}")
    if form.kind == "auto" and machine.gpus:
        form = replace(form, kind="gpu", gpus="all", lanes=form.lanes or AUTO_GPU_SLOTS)
    elif form.kind == "auto":
        form = replace(form, kind="cpu", count=len(machine.cores))
    return _gpus(spec, form, machine) if form.kind == "gpu" else _cpus(spec, form, machine)


def node_name() -> str:
    """Return the host's name as used in device and queue names: letters, digits and hyphens."""
    return re.sub(r"[^A-Za-z0-9-]+", "-", socket.gethostname())[:40] or "node"


def _cpus(spec: str, form: DeviceSpec, machine: Machine) -> tuple[Device, ...]:
    count, each = form.count, form.cores
    if count < 1 or each < 1 or count * each > len(machine.cores):
        raise UsageError.refuse(
            "devices", spec, f"1 to {len(machine.cores)} cores in all; this machine has {machine}"
        )
    share = machine.memory * each // len(machine.cores) if machine.memory is not None else None
    model = model_name()
    sets = [machine.cores[i * each : (i + 1) * each] for i in range(count)]
    return tuple(
        Device(
            name=f"cpu.{machine.node}.{_ranges(cores)}",
            node=machine.node,
            kind="cpu",
            cores=cores,
            memory=share,
            slots=form.slots,
            model=model,
            seats=form.seats,
        )
        for cores in sets
    )


def _gpus(spec: str, form: DeviceSpec, machine: Machine) -> tuple[Device, ...]:
    every = range(len(machine.gpus))
    numbers = {int(number) for number in form.gpus.split(",")} if form.gpus != "all" else {*every}
    selected = sorted(numbers)
    if not selected or not all(index in every for index in selected):
        allowed = f"GPUs 0 to {every.stop - 1}" if every else "auto or cpu:<devices>x<cores>"
        raise UsageError.refuse("devices", spec, f"{allowed}; this machine has {machine}")
    return tuple(
        Device(
            name=f"cuda.{machine.node}.{_short(machine.gpus[index].uuid)}",
            node=machine.node,
            kind="cuda",
            cores=_share(machine.cores, position, len(selected)),
            memory=machine.gpus[index].memory,
            slots=form.slots,
            uuid=machine.gpus[index].uuid,
            model=machine.gpus[index].model,
            seats=form.seats,
        )
        for position, index in enumerate(selected)
    )


def _share(cores: tuple[int, ...], position: int, count: int) -> tuple[int, ...]:
    """Return a GPU's even part of the cores; all of them if there are fewer cores than GPUs."""
    each = len(cores) // count
    return cores[position * each : (position + 1) * each] or cores


def _short(uuid: str) -> str:
    return re.sub(r"[^0-9A-Za-z]", "", uuid.partition("-")[2])[:8]


def _ranges(cores: Sequence[int]) -> str:
    """Write cores as ranges: 0, 1, 2 and 5 are ``0-2_5``."""
    runs: list[list[int]] = []
    for core in cores:
        if runs and core == runs[-1][1] + 1:
            runs[-1][1] = core
        else:
            runs.append([core, core])
    return "_".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def _visible(gpus: tuple[Gpu, ...], visible: str | None) -> tuple[Gpu, ...]:
    """Return the visible GPUs, as CUDA reads the variable.

    It lists numbers or starts of UUIDs, and is read up to the first entry that fits no GPU.
    """
    if visible is None:
        return gpus
    selected: list[Gpu] = []
    for entry in (part.strip() for part in visible.split(",")):
        if entry.isdecimal():
            matches = [gpus[int(entry)]] if int(entry) < len(gpus) else []
        else:
            matches = [gpu for gpu in gpus if entry and gpu.uuid.startswith(entry)]
        if len(matches) != 1:
            break
        selected += matches
    return tuple(selected)
