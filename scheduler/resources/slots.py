"""Slots of devices that can hold several trials: how many trials one may hold now, and why.

Theory of operation. A device with several slots is given one trial, then one more if all of these
hold: there are epochs of a trial there to compare with (``profiling.costs.interference``); the
measured gain justifies it, or is still to be measured; the memory need of the largest trial times
their number fits into the device's memory with a reserve; none of the trials has run out of memory
beside others; and no gang is at work. Empty devices always come first. While a number is being
tried, it is tried on one device only. Policies take no part in this: they order the trials,
whatever the slots.
"""

from __future__ import annotations

from typing import NamedTuple

from ...profiling.costs.interference import Interference
from ..model.decisions import Member
from ..model.trial import Trial
from ..state.state import Attempt, EngineState

#: The part of a device's memory that is left free. Measured pairs needed up to 15 % more than the
#: sum of what each needs alone (Lucid's table of 1,388 pairs, 5th to 95th percentile).
RESERVE = 0.15
#: Another trial is tried beside one only if that one has so many epochs left to compare.
LEFT = 3


class Room(NamedTuple):
    """How many trials a device may hold, and why.

    ``trying``: this number is tried to measure whether it gains.
    """

    slots: int
    why: str
    trying: bool = False


def places(state: EngineState) -> list[Member]:
    """One free slot of each device that may take a trial, or one more; empty devices come first."""
    empty, shared = list[Member](), list[Member]()
    for name, device in state.devices.items():
        if all(device.fences) or not state.usable(name):  # mostly there is none
            continue
        slot = Member(name, device.fences.index(0))
        (shared if any(device.fences) else empty).append(slot)
    if shared and any(len(each.segment.members) > 1 for each in state.attempts.values()):
        return empty
    return empty + [slot for slot in shared if _may_take_more(state, slot.device)]


def capacity(state: EngineState, name: str) -> int:
    """How many trials the device may have at once at present; one if it is empty."""
    return max(len(state.attempts_on(name)), room(state, name).slots)


def _may_take_more(state: EngineState, name: str) -> bool:
    attempts, found = state.attempts_on(name), room(state, name)
    if len(attempts) >= found.slots or any(each.leaves for each in attempts):
        return False
    return not found.trying or any(left(state, each) >= LEFT for each in attempts)


def left(state: EngineState, attempt: Attempt) -> int:
    """How many epochs its trial has after the current one."""
    trial = state.trials[attempt.segment.trial]
    return trial.target - trial.epoch - 1


def room(state: EngineState, name: str, newcomer: Trial | None = None) -> Room:
    """How many trials the device ``name`` may hold: those at work there, and ``newcomer``."""
    device = state.devices[name].device
    if device.slots == 1:
        return Room(1, "it has one slot")
    attempts = state.attempts_on(name)
    if any(len(each.segment.members) > 1 for each in attempts):
        return Room(1, "a gang has the whole device")
    residents = [state.trials[each.segment.trial] for each in attempts]
    trials = residents if newcomer is None else [*residents, newcomer]
    for trial in trials:
        if trial.alone:
            return Room(1, f"trial {trial.number} ran out of memory beside others")
    most = device.slots
    known = {t.study: state.sharing.of(t.study, device.kind) for t in trials}
    if device.memory is not None and known:
        largest = max(each.memory for each in known.values())
        if not all(each.memory for each in known.values()):
            return Room(1, "what memory its trials need is not known yet")
        most = min(most, max(1, int((1.0 - RESERVE) * device.memory // largest)))
        if most == 1:
            return Room(1, f"two trials of {_gib(largest)} are too much for {_gib(device.memory)}")
    rooms = [_measured(state, name, study, each, most) for study, each in known.items()]
    return min(rooms, default=Room(1, "nothing runs there"))


def _measured(state: EngineState, name: str, study: str, known: Interference, most: int) -> Room:
    """How many trials the measurements of one study allow there."""
    verdict = known.verdict(most)
    if verdict.trying:
        fewer = verdict.slots - 1
        attempts = state.attempts_on(name)
        if not any(known.has_baseline(each.segment.trial, fewer) for each in attempts):
            beside = "alone" if fewer == 1 else f"{fewer} at once"
            return Room(fewer, f"its trials have too few epochs {beside} to compare with")
        if len(attempts) < verdict.slots and _tried_elsewhere(state, study, name, verdict.slots):
            return Room(fewer, f"{verdict.slots} at once are being tried on another device")
        words = f"whether {verdict.slots} at once gain is being found out"
        return Room(verdict.slots, words, trying=True)
    if verdict.gain is None:
        return Room(verdict.slots, "its epochs take no time")
    gain = f"{verdict.gain:.2f} ± {verdict.gain * verdict.error:.2f} times the total speed"
    return Room(verdict.slots, f"{verdict.judged} at once have {gain} of {verdict.judged - 1}")


def _tried_elsewhere(state: EngineState, study: str, name: str, slots: int) -> bool:
    kind = state.devices[name].device.kind
    return any(
        len(there := state.attempts_on(other)) >= slots
        and any(each.study == study for each in there)
        for other, known in state.devices.items()
        if other != name and known.device.slots >= slots and known.device.kind == kind
    )


def _gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"


def are_kept_for(state: EngineState, trial: Trial) -> bool:
    """Whether free devices are kept for ``trial`` until it can have its narrow width."""
    course = state.courses.get(trial.id)
    if not state.patient or course is None or state.shared_at is not None:
        return False
    there = sum(state.usable(name) for name in state.devices)
    return course.narrow <= there - len(state.studies[trial.study].refused)
