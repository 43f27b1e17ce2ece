"""Device values: a GPU or a set of CPU cores, its slots and lanes, and the queue of each slot.

Written forms: ``cpu:2x1`` is two devices of one core each, ``cpu:1x2`` is one device of two cores,
``cpu:2x1*2`` is two one-core devices with two slots each, ``cpu:2x1*2x4`` two with two lanes of
four slots each. ``gpu:all`` and ``gpu:0,1`` are GPUs. ``auto`` is every GPU, or one device a CPU
core if there is no GPU.

A lane is one trainer process. The trials in its slots, its *residents*, take turns: one of them
computes at a time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Annotated

from annotated_types import Interval, Len

from ...base.values import Natural

#: The most slots, and the most cores, of a device.
MAX_SIZE = 4096
Size = Annotated[int, Interval(ge=1, le=MAX_SIZE)]

KINDS = ("cpu", "cuda")


@dataclass(frozen=True, slots=True)
class Device:
    """One schedulable device of a node."""

    #: A name that is unique in the installation: ``cpu.<node>.<cores>`` or ``cuda.<node>.<uuid8>``.
    name: str
    #: The node that it belongs to.
    node: str
    #: One of ``KINDS``.
    kind: str
    #: The CPU cores that its processes are bound to.
    cores: Annotated[tuple[Natural, ...], Len(0, MAX_SIZE)]
    #: Memory in bytes; None if unknown.
    memory: Natural | None
    #: The number of trials that it can hold at once, in all lanes: a multiple of ``seats``.
    slots: Size = 1
    #: A GPU's name for ``CUDA_VISIBLE_DEVICES``; None for CPU cores.
    uuid: str | None = None
    #: The hardware's own name.
    model: str = ""
    #: The reason why its energy cannot be measured; empty if it can.
    unmetered: str = "nobody has looked for meters"
    #: The number of trials that take turns in one lane.
    seats: Size = 1
    #: The reason why it cannot start trainers in ``rootfs:`` environments; empty if it can.
    no_rootfs: str = "nobody has looked for bwrap"

    @property
    def lanes(self) -> int:
        """The number of its trainer processes."""
        return self.slots // self.seats

    def lane(self, slot: int) -> int:
        """Return the number of the lane, from 0, that has ``slot`` as a seat."""
        return slot // self.seats

    def queue(self, slot: int) -> str:
        """Return the Celery queue that feeds ``slot`` (0 to ``slots`` - 1)."""
        return f"{self.name}.s{slot}"


def slot_name(device: str, slot: int, several: Collection[str]) -> str:
    """Return the name under which a slot is shown: ``cpu.n.0/1``.

    ``several`` names the devices with several slots; the one slot of another device is shown under
    the device's name.
    """
    return f"{device}/{slot}" if slot or device in several else device


def with_several_slots(devices: Iterable[Device]) -> set[str]:
    """Return the names of the devices that have several slots."""
    return {device.name for device in devices if device.slots > 1}
