"""Autoscaling demand: the number of further devices that would have work now.

The engine is asked, with imaginary devices added. Every trial that would start on one of them
counts, whether it waits already or would still have to be proposed. Widening does not count: more
devices speed running trials up, but that is no reason to start a machine.
"""

from __future__ import annotations

from ...profiling.devices.device import Device
from ..engine.engine import Engine
from ..model.decisions import Dispatch
from ..model.events import Tick
from ..resources.slots import free_slots
from ..state.state import DeviceState

#: The most devices that are imagined. An autoscaler has a lower limit of its own.
MAX_DEMAND = 256


def device_demand(engine: Engine, limit: int = MAX_DEMAND) -> int:
    """Return the number of further devices that would have work at once, at most ``limit``.

    This call changes the engine, so pass one that was made from a copy of the state. Each imaginary
    device has as many slots as the largest joined device has lanes, and uses as many of them as
    pays.
    """
    state = engine.state
    slots = max((joined.device.lanes for joined in state.devices.values()), default=1)
    names = [f"imagined.{number}" for number in range(limit)]
    for name in names:
        device = Device(name, "imagined", "imagined", (), None, slots)
        state.devices[name] = DeviceState(device, "", [0] * slots)
    # At time 0, so no deadline comes due and the plan of widths stands.
    decisions = engine.handle(Tick(at=0.0))
    started = {
        member.device
        for decision in decisions
        if isinstance(decision, Dispatch)
        for member in decision.segment.members
    }
    proposals = sum(ask.n for study in state.studies.values() for ask in study.asks.values())
    free = sum(slot.device not in names for slot in free_slots(state, engine.extensions))
    per_device = max((len(joined.at_work) for joined in state.devices.values()), default=1)
    hypothetical = len(started.intersection(names))
    return min(limit, hypothetical + max(0, -(-(proposals - free) // max(1, per_device))))
