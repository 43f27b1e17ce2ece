"""Several trials on one device: which places there are, and who leaves one that does not pay.

Theory of operation. A device with several slots is given one trial, then one more where all of
this holds: epochs of a trial there are known to compare with (``profiling.sharing``), the measured
gain says so or is still to be found out, the largest of the trials times their number fits into the
device's memory with a reserve, none of them has run out of memory beside others, and no gang is at
work. Empty devices always come first, and a trial that is turned away is not overtaken. While a
number is being tried, it is tried on one device only.

Who is more than a device may hold is cut at its epoch's end, the newest first; so is one of several
where another device stands empty. Who would begin anew elsewhere is left where it is: an Optuna
objective, and an epoch function whose newest epoch has no checkpoint.

Policies take no part in this: they order the trials, whatever the places.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..profiling.sharing import Interference
from .decisions import Cut, Member
from .planning import Planning
from .state import Attempt, EngineState
from .trial import Trial

#: Part of a device's memory that is left free: measured pairs needed up to 15 % more than the sum
#: of what each needs alone (Lucid's table of 1,388 pairs, 5th to 95th percentile).
RESERVE = 0.15
#: Epochs that a trial must have left for another to be tried beside it: some to compare.
LEFT = 3


class Room(NamedTuple):
    """So many trials a device may hold, and why; ``trying``: to find out whether that gains."""

    slots: int
    why: str
    trying: bool = False


def places(state: EngineState) -> list[Member]:
    """One free slot of each device that may take a trial (more): empty devices first."""
    empty, shared = [], []
    gang = any(len(each.segment.members) > 1 for each in state.attempts.values())
    for name, device in state.devices.items():
        if not state.usable(name) or all(device.fences):
            continue
        slot = Member(name, device.fences.index(0))
        if state.is_free(name):
            empty.append(slot)
        elif not gang and _may_take_more(state, name):
            shared.append(slot)
    return empty + shared


def _may_take_more(state: EngineState, name: str) -> bool:
    attempts, found = state.attempts_on(name), room(state, name)
    if len(attempts) >= found.slots or any(each.leaves for each in attempts):
        return False
    return not found.trying or any(_left(state, each) >= LEFT for each in attempts)


def _left(state: EngineState, attempt: Attempt) -> int:
    """Epochs that its trial has after the one that it is in."""
    trial = state.trials[attempt.segment.trial]
    return trial.target - trial.epoch - 1


def room(state: EngineState, name: str, newcomer: Trial | None = None) -> Room:
    """How many trials ``name`` may hold of those at work there, with ``newcomer`` one of them."""
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
    """What is measured of one study allows there."""
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


class Packing(Planning):
    """Learns from shared epochs, and has trials leave a device."""

    def _fits(self, trial: Trial, place: Member) -> bool:
        """Whether ``trial`` may join whoever is at work there."""
        at_work = len(self.state.attempts_on(place.device))
        return not at_work or at_work < room(self.state, place.device, trial).slots

    def _at_work_changed(self, name: str) -> None:
        """Note who is at work there now, and since when; who is new there is cold."""
        device = self.state.devices[name]
        now = [each.segment.trial for each in self.state.attempts_on(name)]
        if sorted(now) != sorted(device.at_work):
            device.cold = [t for t in now if t in device.cold or t not in device.at_work]
            device.at_work, device.since = now, self._at

    def _saw_sharing(self, trial: Trial, attempt: Attempt, seconds: float, memory: int) -> bool:
        """Learn from an accepted epoch; True where places may have come or gone by it.

        A trial's first epoch at a device is not counted, nor another's beside it: code and data
        were loaded meanwhile.
        """
        [name, *others] = [member.device for member in attempt.segment.members]
        device = self.state.devices[name]
        if device.device.slots == 1 or others:
            return False
        known = self.state.sharing.of(trial.study, device.device.kind)
        before = room(self.state, name).slots
        known.memory = max(known.memory, memory)
        if trial.id in device.cold:
            device.cold.remove(trial.id)
            device.since = self._at
        elif not device.cold and device.since <= attempt.began:
            known.saw(trial.id, len(device.at_work), seconds)
        return room(self.state, name).slots != before

    def _even_out(self, free: Sequence[Member]) -> None:
        """Have those who share without need leave at the end of their epoch."""
        empty = [place.device for place in free if self.state.is_free(place.device)]
        for name, device in self.state.devices.items():
            if device.device.slots == 1:
                continue
            attempts = [each for each in self.state.attempts_on(name) if not each.leaves]
            if len(attempts) < 2:
                continue
            excess = max(len(attempts) - room(self.state, name).slots, min(1, len(empty)))
            for attempt in reversed(attempts[1:]):
                if excess <= 0:
                    break
                if not (_left(self.state, attempt) and self._can_move(attempt)):
                    continue
                refused = self.state.studies[attempt.study].refused
                if empty and refused.keys() >= set(empty):
                    continue
                self._leave_device(attempt)
                excess -= 1
                empty = empty[1:]

    def _can_move(self, attempt: Attempt) -> bool:
        """Whether its trial goes on from where it is, on whatever device."""
        trial = self.state.trials[attempt.segment.trial]
        contract = self.state.studies[attempt.study].spec.contract
        kept = bool(trial.parents) and trial.parents[0].epoch == trial.epoch
        return contract in ("torch", "empty") or (contract == "epochs" and kept)

    def _leave_device(self, attempt: Attempt) -> None:
        attempt.leaves = True
        segment = attempt.segment
        if not attempt.cut and self.state.trials[segment.trial].epoch + 1 < segment.last:
            attempt.cut = True
            self._decide(Cut, trial=segment.trial, fence=segment.fence)
