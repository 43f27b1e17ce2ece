"""The memory of simulated devices: the needs of trials, and trials that find too little left.

Theory of operation. Every trial at work is a process of its own, as in a real run. It holds its
*persistent* bytes (weights, optimiser state, data, the process itself) all the time, and in every
step its *ephemeral* bytes on top (activations, gradients, workspaces). Steps of neighbours are not
in time with each other, so their peaks meet sooner or later: trials fit on a device together if the
sum of their peaks does. One that does not fit runs out of memory at once; those before it go on.

In the seats of one lane only one step is taken at a time. So residents need what all of them have
persistently, and the ephemeral bytes of one.

A gang divides each batch among its members, and so the ephemeral bytes; each has all of the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ....profiling.devices.device import Device
from ....scheduler.model.decisions import Member

GIB = 2**30
#: The least memory of a device, and the most of a device or a trial (GiB).
MIN_MEMORY, MAX_MEMORY = 1e-3, 1e5


class MemoryNeed(NamedTuple):
    """Memory need of a trial in bytes; both are 0 if it is not known."""

    persistent: int = 0
    ephemeral: int = 0

    def peak(self, width: int = 1) -> int:
        """Return the most that each of ``width`` members needs."""
        return self.persistent + -(-self.ephemeral // width)


#: The need of a trial that states none.
UNKNOWN = MemoryNeed()


@dataclass
class DeviceMemory:
    """Memory held on each device. Devices without a stated memory have enough."""

    devices: Sequence[Device]
    #: Lane and need of each holder, by device with a stated memory and by fence.
    _held: dict[str, dict[int, tuple[int, MemoryNeed]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._held = {each.name: {} for each in self.devices if each.memory is not None}
        self._of = {each.name: each for each in self.devices}

    def claim(self, fence: int, members: Sequence[Member], need: MemoryNeed) -> str:
        """Claim the need of an attempt on the device of each of its ``members``.

        Returns the first device that has too little left, and then claims nothing; "" if all have
        enough.
        """
        limited = [member for member in members if member.device in self._held]
        claimed = MemoryNeed(need.persistent, need.peak(len(members)) - need.persistent)
        for member in limited:
            of_device = self._held[member.device]
            of_device[fence] = self._of[member.device].lane(member.slot), claimed
            if self.free(member.device) < 0:
                self.release(fence)
                return member.device
        return ""

    def release(self, fence: int) -> None:
        """Give back what an attempt has taken, if anything."""
        for of_device in self._held.values():
            of_device.pop(fence, None)

    def free(self, device: str) -> int:
        """Bytes that nobody holds on a device with a stated memory."""
        lanes: dict[int, list[MemoryNeed]] = {}
        for lane, need in self._held[device].values():
            lanes.setdefault(lane, []).append(need)
        return (self._of[device].memory or 0) - sum(
            sum(each.persistent for each in needs) + max(each.ephemeral for each in needs)
            for needs in lanes.values()
        )
