"""Spending of a study: device-seconds, joules and money.

Theory of operation. An attempt is charged for the time of its slot, or for its part of a lane's
time, from its dispatch to its end. That includes its start and epochs that are lost. A gang is
charged for each of its devices. The time is counted at each accepted epoch and at the end. If ``n``
lanes of a device are in use at that moment, the attempt is charged for 1/``n`` of the device. So
the device-seconds of all studies on a device add up to about the time in which the device was in
use. Money is device-seconds times the price of the device's kind. Joules are those that epochs
report.
"""

from __future__ import annotations

from ..model.study import HOUR, Spent
from .state import Attempt, EngineState


def device_share(state: EngineState, attempt: Attempt, *, priced: bool) -> float:
    """Return the device-seconds that a second of the attempt's slot time costs.

    If ``priced``, return the money that it costs.
    """
    members, total = attempt.segment.members, 0.0
    for member in members:
        device = state.devices[member.device]
        shared = len(members) == 1 and device.device.slots > 1 and device.device.lanes > 1
        part = 1.0 / len(device.lanes_in_use()) if shared else 1.0
        total += part * (state.prices.get(device.device.kind, 0.0) / HOUR if priced else 1.0)
    return total


def charged(
    state: EngineState, spent: Spent, attempt: Attempt, had: float, joules: float = 0.0
) -> Spent:
    """Return ``spent`` plus ``joules`` and the cost of the attempt's time since its last charge.

    ``had`` is the attempt's slot time until now (``slot_seconds``). Its ``charged`` is updated.
    Call this while the attempt still has its slots, since the cost depends on the lanes in use.
    """
    seconds = max(0.0, had - attempt.charged)
    attempt.charged += seconds
    money = seconds * device_share(state, attempt, priced=True) if state.prices else 0.0
    return Spent(
        spent.device_seconds + seconds * device_share(state, attempt, priced=False),
        spent.joules + joules,
        spent.money + money,
        spent.reached,
    )
