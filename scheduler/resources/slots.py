"""Slots of devices that can hold several trials: how many trials one may hold now, and why.

Theory of operation. A device with several slots is given one trial, then one more if all of these
hold: there are epochs of a trial there to compare with (``profiling.costs.interference``); the
measured gain justifies it, or is still to be measured; what the trials need fits into the device's
memory (``memory_fit``); none of them has run out of memory beside others too often; and no gang is
at work. Empty devices always come first. While a number is being tried, it is tried on one device
only. Policies take no part in this: they order the trials, whatever the slots.

Where lanes have several seats, all of this is said of lanes: a lane that is free counts as a free
slot, and neighbours in a lane take turns, so they do not slow each other's steps down. The module
``lanes`` says who takes a seat beside others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...profiling.costs.interference import Interference
from ..model.decisions import Member
from ..model.trial import Trial
from ..state.state import Attempt, DeviceState, EngineState
from .lanes import group_need, lane_trials
from .memory_fit import Fit, fit, fit_needs

#: Another trial is tried beside one only if that one has so many epochs left to compare.
MIN_EPOCHS_LEFT = 3


class SlotLimit(NamedTuple):
    """How many trials a device may hold, and why.

    ``exploring``: this number is tried to measure whether it gains.
    """

    slots: int
    why: str
    exploring: bool = False


def free_slots(state: EngineState) -> list[Member]:
    """One free slot of each device that may take a trial, or one more; empty devices come first."""
    empty, shared = list[Member](), list[Member]()
    for name, device in state.devices.items():
        if all(device.fences) or not state.usable(name):  # mostly there is none
            continue
        slot: int | None = device.fences.index(0)
        if device.device.seats > 1 and any(device.fences):
            slot = _free_lane(device)
        if slot is not None:
            (shared if any(device.fences) else empty).append(Member(name, slot))
    if shared and any(len(each.segment.members) > 1 for each in state.attempts.values()):
        return empty
    return empty + [slot for slot in shared if _accepts_more(state, slot.device)]


def _free_lane(device: DeviceState) -> int | None:
    """The first slot of a lane without residents; None if there is no such lane."""
    used = device.lanes_in_use()
    free = (lane for lane in range(device.device.lanes) if lane not in used)
    lane = next(free, None)
    return None if lane is None else device.seats_of(lane)[0]


def capacity(state: EngineState, name: str) -> int:
    """How many trials the device may have at once at present; one if it is empty."""
    return max(at_once(state, name), slot_limit(state, name).slots)


def at_once(state: EngineState, name: str) -> int:
    """How many trials compute at once on the device: one in each lane in use."""
    device = state.devices[name]
    attempts = state.attempts_on(name)
    if device.device.seats == 1 or any(len(each.segment.members) > 1 for each in attempts):
        return len(attempts)
    return len(device.lanes_in_use())


def _accepts_more(state: EngineState, name: str) -> bool:
    attempts, limit = state.attempts_on(name), slot_limit(state, name)
    if at_once(state, name) >= limit.slots or any(each.leaves for each in attempts):
        return False
    return not limit.exploring or any(
        epochs_left(state, each) >= MIN_EPOCHS_LEFT for each in attempts
    )


def epochs_left(state: EngineState, attempt: Attempt) -> int:
    """How many epochs its trial has after the current one."""
    trial = state.trials[attempt.segment.trial]
    return trial.target - trial.epoch - 1


def can_move(state: EngineState, trial: Trial) -> bool:
    """Whether the trial can go on from where it is on any device.

    An Optuna objective would begin anew elsewhere, and so would an epoch function whose last epoch
    has no checkpoint.
    """
    contract = state.studies[trial.study].spec.contract
    kept = bool(trial.parents) and trial.parents[0].epoch == trial.epoch
    return contract in ("torch", "empty") or (contract == "epochs" and kept)


def slot_limit(state: EngineState, name: str, newcomer: Trial | None = None) -> SlotLimit:
    """How many trials the device ``name`` may hold: those at work there, and ``newcomer``.

    Where lanes have several seats: how many lanes of it may be in use, one of them for
    ``newcomer``.
    """
    device = state.devices[name].device
    if device.lanes == 1:
        return SlotLimit(1, "it has one slot" if device.slots == 1 else "it has one lane")
    attempts = state.attempts_on(name)
    if any(len(each.segment.members) > 1 for each in attempts):
        return SlotLimit(1, "a gang has the whole device")
    residents = [state.trials[each.segment.trial] for each in attempts]
    trials = residents if newcomer is None else [*residents, newcomer]
    for trial in trials:
        if trial.alone:
            return SlotLimit(1, f"trial {trial.number} ran out of memory beside others")
    if state.packed:
        return _packed_limit(state, name, trials, newcomer)
    return _gaining_limit(state, name, trials, newcomer)


def _fit(state: EngineState, name: str, trials: Sequence[Trial], newcomer: Trial | None) -> Fit:
    """How many trials, or lanes with their residents, the device's memory holds."""
    device = state.devices[name].device
    if device.seats == 1:
        return fit(state, device, trials)
    groups = [*lane_trials(state, name).values(), *([[newcomer]] if newcomer else [])]
    return fit_needs(state, device, [group_need(state, device, each) for each in groups])


def _gaining_limit(
    state: EngineState, name: str, trials: Sequence[Trial], newcomer: Trial | None
) -> SlotLimit:
    """How many trials the device may hold so that each of them gains total speed."""
    device = state.devices[name].device
    max_slots = device.lanes
    if device.memory is not None and trials:
        memory = _fit(state, name, trials, newcomer)
        max_slots = min(max_slots, memory.trials)
        if max_slots < max(2, at_once(state, name) + (newcomer is not None)):
            return SlotLimit(max(1, max_slots), memory.why)
    known = {t.study: state.sharing.of(t.study, device.kind) for t in trials}
    # A trial that only changes its lane knows its epochs with one lane less.
    compared = trials if device.seats > 1 else trials[: len(state.attempts_on(name))]
    limits = [
        _measured_limit(state, name, study, each, max_slots, compared)
        for study, each in known.items()
    ]
    return min(limits, default=SlotLimit(1, "nothing runs there"))


def _packed_limit(
    state: EngineState, name: str, trials: Sequence[Trial], newcomer: Trial | None
) -> SlotLimit:
    """How many of ``trials`` the device's memory holds, or more if it holds them all."""
    device = state.devices[name].device
    if device.memory is None:
        return SlotLimit(device.lanes, "its slots are filled, and its memory is not known")
    memory = _fit(state, name, trials, newcomer)
    fits = memory.trials >= at_once(state, name) + (newcomer is not None)
    return SlotLimit(device.lanes if fits else max(1, memory.trials), memory.why)


def _measured_limit(  # noqa: PLR0917 - one device, one study, and what is known of both
    state: EngineState,
    name: str,
    study: str,
    known: Interference,
    max_slots: int,
    compared: Sequence[Trial],
) -> SlotLimit:
    """How many trials the measurements of one study allow there.

    A further one is only tried if an epoch of one of ``compared`` is there to compare with.
    """
    verdict = known.verdict(max_slots)
    if verdict.exploring:
        one_less = verdict.slots - 1
        if not any(known.has_baseline(each.id, one_less) for each in compared):
            beside = "alone" if one_less == 1 else f"{one_less} at once"
            return SlotLimit(one_less, f"its trials have too few epochs {beside} to compare with")
        if at_once(state, name) < verdict.slots and _explored_elsewhere(
            state, study, name, verdict.slots
        ):
            return SlotLimit(one_less, f"{verdict.slots} at once are being tried on another device")
        reason = f"whether {verdict.slots} at once gain is being found out"
        return SlotLimit(verdict.slots, reason, exploring=True)
    if verdict.gain is None:
        return SlotLimit(verdict.slots, "its epochs take no time")
    gain = f"{verdict.gain:.2f} ± {verdict.gain * verdict.error:.2f} times the total speed"
    return SlotLimit(verdict.slots, f"{verdict.judged} at once have {gain} of {verdict.judged - 1}")


def _explored_elsewhere(state: EngineState, study: str, name: str, slots: int) -> bool:
    kind = state.devices[name].device.kind
    return any(
        at_once(state, other) >= slots
        and any(each.study == study for each in state.attempts_on(other))
        for other, known in state.devices.items()
        if other != name and known.device.lanes >= slots and known.device.kind == kind
    )


def devices_are_reserved_for(state: EngineState, trial: Trial) -> bool:
    """Whether free devices are kept for ``trial`` until it can have its narrow width."""
    width_plan = state.courses.get(trial.id)
    if not state.patient or width_plan is None or state.shared_at is not None:
        return False
    usable = sum(state.usable(name) for name in state.devices)
    return width_plan.narrow <= usable - len(state.studies[trial.study].refused)
