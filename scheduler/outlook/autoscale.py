"""How many more devices could work now: the engine is asked, given devices that are not there.

Every trial that would start on one of them counts, whether it waits already or is only to be
proposed. Width does not: what more devices do for trials that run is a bonus, and no reason to
start a machine.
"""

from __future__ import annotations

from ...profiling.devices.device import Device
from ..engine.engine import Engine
from ..model.decisions import Dispatch
from ..model.events import Tick
from ..resources.slots import places
from ..state.state import DeviceState, EngineState

#: No more devices than this are imagined: an autoscaler has a limit of its own, and a lower one.
MOST = 256


def devices_wanted(state: EngineState, most: int = MOST) -> int:
    """So many more devices, ``most`` of them or fewer, would have work at once.

    ``state`` is used up: give a copy. Devices count with as many slots as the largest that joined,
    of which as many are used as pays.
    """
    slots = max((known.device.slots for known in state.devices.values()), default=1)
    names = [f"imagined.{number}" for number in range(most)]
    for name in names:
        device = Device(name, "imagined", "imagined", (), None, slots)
        state.devices[name] = DeviceState(device, "", [0] * slots)
    engine = Engine(state)
    # In the past: no deadline comes due, and the plan of widths stands.
    decisions = engine.handle(Tick(at=0.0))
    started = {
        member.device
        for decision in decisions
        if isinstance(decision, Dispatch)
        for member in decision.segment.members
    }
    asked = sum(ask.n for study in state.studies.values() for ask in study.asks.values())
    real = sum(place.device not in names for place in places(state))
    each = max((len(known.at_work) for known in state.devices.values()), default=1)
    imagined = len(started.intersection(names))
    return min(most, imagined + max(0, -(-(asked - real) // max(1, each))))
