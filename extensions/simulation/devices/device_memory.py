"""The memory of simulated devices: how much trials need, and which trials run out of memory.

Theory of operation. Every running trial is a process of its own, as in a real run. A trial needs
its *persistent* bytes (weights, optimiser state, data, the process itself) all the time. In every
step it needs its *ephemeral* bytes (activations, gradients, workspaces) in addition. The steps of
different trials are not synchronised, so their peaks coincide sooner or later. Therefore trials fit
on a device together if the sum of their peaks fits. A trial that does not fit runs out of memory at
once, and the trials that were there before continue.

In one lane (a process that trains several trials in turn) only one step runs at a time. So a lane
needs the sum of the persistent bytes of its trials, plus the largest ephemeral bytes of any of
them.

A gang (several devices that train one trial) divides each batch among its members, and the
ephemeral bytes with the batch. Each member needs all of the persistent bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ....profiling.devices.device import Device
from ....scheduler.model.decisions import Member

GIB = 2**30
#: The least memory of a device, and the most memory of a device or a trial (GiB).
MIN_MEMORY, MAX_MEMORY = 1e-3, 1e5


class MemoryNeed(NamedTuple):
    """The memory need of a trial in bytes. Both numbers are 0 if the need is not known."""

    persistent: int = 0
    ephemeral: int = 0

    def peak(self, width: int = 1) -> int:
        """Return the most bytes that each device of a gang of ``width`` devices needs at a time."""
        return self.persistent + -(-self.ephemeral // width)


#: The memory need of a trial for which the workload states none.
UNKNOWN = MemoryNeed()


@dataclass
class DeviceMemory:
    """The memory in use on each simulated device.

    A device without a stated memory is never full.
    """

    devices: Sequence[Device]
    #: For each device with a stated memory: the lane and the need of each attempt, by the attempt's
    #: fence.
    _held: dict[str, dict[int, tuple[int, MemoryNeed]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._held = {each.name: {} for each in self.devices if each.memory is not None}
        self._of = {each.name: each for each in self.devices}

    def claim(self, fence: int, members: Sequence[Member], need: MemoryNeed) -> str:
        """Claim the memory of an attempt on the device of each of its ``members``.

        ``fence`` identifies the attempt. Return "" if all devices have enough memory. Otherwise
        return the name of the first device that has too little memory left; in this case nothing
        stays claimed.
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
        """Release the memory that the attempt with this fence has claimed, if any."""
        for of_device in self._held.values():
            of_device.pop(fence, None)

    def free(self, device: str) -> int:
        """Return the unclaimed bytes of a device with a stated memory.

        The result is negative if trials have claimed more than the device has.
        """
        lanes: dict[int, list[MemoryNeed]] = {}
        for lane, need in self._held[device].values():
            lanes.setdefault(lane, []).append(need)
        return (self._of[device].memory or 0) - sum(
            sum(each.persistent for each in needs) + max(each.ephemeral for each in needs)
            for needs in lanes.values()
        )
