"""The memory of simulated devices: what trials need, and who finds none left.

Theory of operation. Every trial at work is a process of its own, as in a real run. It holds its
*persistent* bytes (weights, optimiser state, data, the process itself) all the time, and in every
step its *ephemeral* bytes on top (activations, gradients, workspaces). Steps of neighbours are not
in time with each other, so their peaks meet sooner or later: trials fit on a device together if the
sum of their peaks does. One that does not fit runs out of memory at once; those before it go on.

A gang divides each batch among its members, and so the ephemeral bytes; each has all of the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ...profiling.devices.device import Device

GIB = 2**30
#: The least memory of a device, and the most of a device or a trial (GiB).
MIN_MEMORY, MAX_MEMORY = 1e-3, 1e5


class MemoryNeed(NamedTuple):
    """What a trial needs (bytes). Both are 0 if that is not known."""

    persistent: int = 0
    ephemeral: int = 0

    def peak(self, width: int = 1) -> int:
        """The most that each of ``width`` members needs."""
        return self.persistent + -(-self.ephemeral // width)


#: What is said of a trial that says nothing.
UNKNOWN = MemoryNeed()


@dataclass
class DeviceMemory:
    """Who holds how much of which device. Devices without a stated memory have enough."""

    devices: Sequence[Device]
    #: Bytes by fence, for each device with a stated memory.
    _held: dict[str, dict[int, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._held = {each.name: {} for each in self.devices if each.memory is not None}
        self._limits = {each.name: each.memory or 0 for each in self.devices}

    def claim(self, fence: int, devices: Sequence[str], size: int) -> str:
        """Take ``size`` bytes of each device for an attempt.

        Returns the first device that has not so much left, and then takes nothing; or nothing.
        """
        limited = [name for name in devices if name in self._held]
        for name in limited:
            if sum(self._held[name].values()) + size > self._limits[name]:
                return name
        for name in limited:
            self._held[name][fence] = size
        return ""

    def release(self, fence: int) -> None:
        """Give back what an attempt has taken, if anything."""
        for held in self._held.values():
            held.pop(fence, None)

    def free(self, device: str) -> int:
        """Bytes that nobody holds on a device with a stated memory."""
        return self._limits[device] - sum(self._held[device].values())
