"""The choice among free slots: a trial gets one where its state is in memory, if it can."""

from __future__ import annotations

from ..model.decisions import Member
from ..model.trial import Trial
from ..state.extensions import Extensions
from ..state.state import EngineState


def warm_first(trial: Trial, empty: list[Member], width: int) -> tuple[Member, ...]:
    """Return slot 0 of up to ``width`` empty devices; those with the trial's state come first.

    The trial's state is assumed to be in memory on the devices of its last segment.
    """
    warm = [member.device for member in trial.members]
    names = [slot.device for slot in empty]
    first = [name for name in warm if name in names]
    devices = [*first, *(name for name in names if name not in first)][:width]
    return tuple(Member(name, 0) for name in devices)


def members_of(
    state: EngineState, extensions: Extensions, trial: Trial, free: list[Member], width: int
) -> tuple[Member, ...]:
    """Return up to ``width`` of the free slots for the trial; an empty tuple if it must wait.

    A trial with a width plan waits until its wide or its narrow width is free. If studies have
    shares, it does not wait but takes the devices that are free.
    """
    empty = [slot for slot in free if slot.slot == 0 and state.is_free(slot.device)]
    width_plan = state.courses.get(trial.id)
    if width_plan is not None and len(empty) < width:
        width = width_plan.narrow
        if width > max(1, len(empty)):
            if state.shared_at is None:
                return ()
            width = max(1, len(empty))  # other studies would take the devices that it waits for
    if width > 1 and len(empty) > 1:
        return warm_first(trial, empty, width)
    return (_slot(state, extensions, trial, free),)


def _slot(state: EngineState, extensions: Extensions, trial: Trial, free: list[Member]) -> Member:
    """Return the slot where the trial's state is in memory, else the least crowded slot.

    Only slots of empty devices are considered if there are any, except for Optuna objectives, which
    start over on another device. A seat in a lane with residents is chosen only if there is no
    other slot.
    """
    if state.studies[trial.study].spec.contract != "objective":
        free = [slot for slot in free if state.is_free(slot.device)] or free
    free = [slot for slot in free if not state.is_beside(slot)] or free
    for member in trial.members:
        if (warm := _warm_slot(state, member, free)) is not None:
            return warm
    if state.is_free(free[0].device):
        return free[0]
    return min(free, key=lambda slot: extensions.crowding(trial, slot))


def _warm_slot(state: EngineState, member: Member, free: list[Member]) -> Member | None:
    """Return a free slot of the lane in which ``member`` was; None if there is none."""
    device = state.devices.get(member.device)
    # A device that left may have come back with fewer slots.
    if device is None or member.slot >= len(device.fences):
        return None
    lane = device.device.lane(member.slot)
    free_here = [slot for slot in free if slot.device == member.device]
    seats = device.seats_of(lane)
    if any(device.fences[slot] for slot in seats):
        return next((slot for slot in free_here if device.device.lane(slot.slot) == lane), None)
    own = any(not state.is_beside(slot) for slot in free_here)
    return Member(member.device, seats[0]) if own else None
