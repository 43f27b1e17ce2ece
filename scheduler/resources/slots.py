"""Free slots of devices that can hold several trials.

Theory of operation. A device with several slots gets one trial, and then further trials one by one,
as long as its limit allows (``Extension.limit``, or else the number of its slots) and no gang is at
work on any device. Empty devices always come first. Policies take no part in this: they order the
trials, whatever the slots.

If lanes have several seats, all of this applies to lanes: a free lane counts as a free slot. The
residents of one lane take turns, so they do not slow each other's steps down. An extension decides
which trials take seats in lanes with residents (``Extension.seats``).
"""

from __future__ import annotations

from ..model.decisions import Member
from ..model.trial import Trial
from ..state.extensions import Extensions, SlotLimit
from ..state.state import Attempt, DeviceState, EngineState

#: The fewest epochs that a trial on a device must have left after its current one, if one more
#: trial is only tried there (``SlotLimit.exploring``).
MIN_EPOCHS_LEFT = 3


def free_slots(state: EngineState, extensions: Extensions) -> list[Member]:
    """Return one free slot of each device that may get a trial, empty devices first."""
    empty, shared = list[Member](), list[Member]()
    for name, device in state.devices.items():
        if all(device.fences) or not state.usable(name):  # mostly no slot is free
            continue
        slot: int | None = device.fences.index(0)
        if device.device.seats > 1 and any(device.fences):
            slot = _free_lane(device)
        if slot is not None:
            (shared if any(device.fences) else empty).append(Member(name, slot))
    if shared and any(len(each.segment.members) > 1 for each in state.attempts.values()):
        return empty
    return empty + [slot for slot in shared if _accepts_more(state, extensions, slot.device)]


def _free_lane(device: DeviceState) -> int | None:
    """Return the first slot of the first lane without residents; None if there is no such lane."""
    lanes = device.lanes_in_use()
    free = (lane for lane in range(device.device.lanes) if lane not in lanes)
    lane = next(free, None)
    return None if lane is None else device.seats_of(lane)[0]


def capacity(state: EngineState, extensions: Extensions, name: str) -> int:
    """Return the number of trials, or of lanes in use, that the device may have at present.

    It is not less than the number at work there now.
    """
    if state.devices[name].device.lanes == 1:
        return 1
    return max(at_once(state, name), slot_limit(state, extensions, name).slots)


def at_once(state: EngineState, name: str) -> int:
    """Return the number of attempts that compute at once on the device.

    If lanes have several seats, one resident computes in each lane in use.
    """
    device = state.devices[name]
    attempts = state.attempts_on(name)
    if device.device.seats == 1 or any(len(each.segment.members) > 1 for each in attempts):
        return len(attempts)
    return len(device.lanes_in_use())


def attempts_beside(state: EngineState) -> int:
    """Return the number of attempts in a lane that had a resident before them."""
    return sum(
        max(0, len(state.residents(device, lane)) - 1)
        for device in state.devices.values()
        if device.device.seats > 1
        for lane in device.lanes_in_use()
    )


def _accepts_more(state: EngineState, extensions: Extensions, name: str) -> bool:
    attempts, limit = state.attempts_on(name), slot_limit(state, extensions, name)
    if at_once(state, name) >= limit.slots or any(each.leaves for each in attempts):
        return False
    return not limit.exploring or any(
        epochs_left(state, each) >= MIN_EPOCHS_LEFT for each in attempts
    )


def epochs_left(state: EngineState, attempt: Attempt) -> int:
    """Return the number of epochs that the attempt's trial has left after its current one."""
    trial = state.trials[attempt.segment.trial]
    return trial.target - trial.epoch - 1


def can_move(state: EngineState, trial: Trial) -> bool:
    """Return True if the trial can continue from its current epoch on any device.

    An Optuna objective would start over elsewhere, and so would an epoch function whose last epoch
    has no checkpoint.
    """
    contract = state.studies[trial.study].spec.contract
    is_durable = bool(trial.parents) and trial.parents[0].epoch == trial.epoch
    return contract in ("torch", "empty") or (contract == "epochs" and is_durable)


def slot_limit(state: EngineState, extensions: Extensions, name: str) -> SlotLimit:
    """Return the number of trials that the device ``name`` may have at once now, and the reason.

    If its lanes have several seats, this is the number of lanes that may be in use.
    """
    device = state.devices[name].device
    if device.lanes == 1:
        return SlotLimit(1, "it has one slot" if device.slots == 1 else "it has one lane")
    limit = extensions.limit(name)
    return limit or SlotLimit(device.lanes, f"it has {device.lanes} places")


def devices_are_reserved_for(state: EngineState, trial: Trial) -> bool:
    """Return True if free devices are kept for ``trial`` until it can have its narrow width."""
    width_plan = state.courses.get(trial.id)
    if not state.patient or width_plan is None or state.shared_at is not None:
        return False
    usable = sum(state.usable(name) for name in state.devices)
    return width_plan.narrow <= usable - len(state.studies[trial.study].refused)
