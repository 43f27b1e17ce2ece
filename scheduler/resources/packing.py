"""Packing: several trials on one device, what is learnt of them, and which one leaves.

Theory of operation. When a device holds more trials than it may (``slots.slot_limit``), the newest
are cut at the end of their epoch. So is one of several trials when another device is empty. A trial
that is turned away is not overtaken. A trial that would have to start over elsewhere stays: an
Optuna objective, and an epoch function whose last epoch has no checkpoint.

Where lanes have several seats, the same holds of lanes: all residents of the newest lane leave if
too many are in use. One of several residents leaves its lane when another lane is free, or when
they need more than the lane has, or when those of one study gain nothing by being together.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..model.decisions import Cut, Member
from ..model.trial import Trial
from ..state.core import Core
from ..state.lane_time import residents
from ..state.state import Attempt
from .lanes import in_use, lane_is_too_small, seat_verdict, without_gain
from .memory_fit import is_too_small
from .slots import at_once, can_move, epochs_left, slot_limit


class Packing:
    """Learns from epochs on shared devices, and has trials leave a device."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._state = core.state

    def may_join(self, trial: Trial, slot: Member) -> bool:
        """Whether ``trial`` may go to the device, beside the trials at work there."""
        at_work = at_once(self._state, slot.device)
        if not at_work:
            return not is_too_small(self._state, slot.device, trial)
        if in_use(self._state, slot):
            return seat_verdict(self._state, slot, trial).accepted
        return at_work < slot_limit(self._state, slot.device, trial).slots

    def at_work_changed(self) -> None:
        """Note where this event began or ended attempts. Called after the event is handled."""
        for name in sorted(self._core.touched & self._state.devices.keys()):
            self._record_at_work(name)

    def _record_at_work(self, name: str) -> None:
        """Note which trials are at work on the device now, and since when. New ones are cold."""
        device = self._state.devices[name]
        now = [each.segment.trial for each in self._state.attempts_on(name)]
        if sorted(now) != sorted(device.at_work):
            device.cold = [t for t in now if t in device.cold or t not in device.at_work]
            device.at_work = now
            if device.device.seats == 1:
                device.since = self._core.at
        if device.device.seats > 1 and device.in_use != (used := device.lanes_in_use()):
            device.in_use, device.since = used, self._core.at

    def observe_epoch(self, trial: Trial, attempt: Attempt, seconds: float, memory: int) -> bool:
        """Learn from an accepted epoch; returns whether the device may now hold another number of
        trials.

        A trial's first epoch on a device is not counted, and neither are the epochs beside it,
        because code and data were loaded meanwhile.
        """
        members = attempt.segment.members
        name = members[0].device
        device = self._state.devices[name]
        if device.device.slots == 1 or len(members) > 1:
            return False
        known = self._state.sharing.of(trial.study, device.device.kind)
        before = slot_limit(self._state, name).slots
        if not attempt.accompanied:  # else the process has what others have left in it
            known.memory = max(known.memory, memory)
            self._observe_memory(trial, device.device.kind, memory)
        if trial.id in device.cold:
            device.cold.remove(trial.id)
            device.since = self._core.at
        elif not device.cold and device.since <= attempt.began:
            known.observe(trial.id, at_once(self._state, name), seconds)
        return slot_limit(self._state, name).slots != before

    def _observe_memory(self, trial: Trial, kind: str, memory: int) -> None:
        """Learn what the process of a trial had at most."""
        if not memory:
            return
        trial.peaks[kind] = max(memory, trial.peaks.get(kind, 0))
        known = self._state.studies[trial.study].processes.get(kind)
        if known is not None:
            known.observe_process(trial.id, memory)

    def rebalance(self, free: Sequence[Member]) -> None:
        """Have trials that need not share a device leave it at the end of their epoch."""
        empty = [slot.device for slot in free if self._state.is_free(slot.device)]
        self._use_free_lanes(free)
        for name, device in self._state.devices.items():
            if device.device.slots == 1:
                continue
            if device.device.seats > 1:
                self._thin_out(name)
                continue
            attempts = [each for each in self._state.attempts_on(name) if not each.leaves]
            if len(attempts) < 2:
                continue
            excess = max(len(attempts) - slot_limit(self._state, name).slots, min(1, len(empty)))
            for attempt in reversed(attempts[1:]):
                if excess <= 0:
                    break
                trial = self._state.trials[attempt.segment.trial]
                if not (epochs_left(self._state, attempt) and can_move(self._state, trial)):
                    continue
                refused = self._state.studies[attempt.study].refused
                if empty and refused.keys() >= set(empty):
                    continue
                self._leave_device(attempt)
                excess -= 1
                empty = empty[1:]

    def _thin_out(self, name: str) -> None:
        """Have residents leave where too many lanes are in use, or one has too little memory."""
        device = self._state.devices[name]
        lanes = {lane: residents(self._state, device, lane) for lane in device.lanes_in_use()}
        excess = at_once(self._state, name) - slot_limit(self._state, name).slots
        newest = sorted(lanes, key=lambda lane: lanes[lane][0].segment.fence)
        for lane in newest[max(1, len(newest) - excess) :] if excess > 0 else ():
            for attempt in lanes[lane]:
                self._leave_if_it_can(attempt)
        for there in lanes.values():
            trials = [self._state.trials[each.segment.trial] for each in there]
            if len(there) > 1 and lane_is_too_small(self._state, device.device, trials):
                self._leave_if_it_can(there[-1])
            elif (gains_nothing := without_gain(self._state, there)) is not None:
                self._leave_if_it_can(gains_nothing)

    def _use_free_lanes(self, free: Sequence[Member]) -> None:
        """Have residents leave the fullest lanes for those that are free."""
        shared = [
            there
            for device in self._state.devices.values()
            if device.device.seats > 1
            for lane in device.lanes_in_use()
            if len(there := residents(self._state, device, lane)) > 1
        ]
        shared.sort(key=len, reverse=True)
        lanes = [
            slot
            for slot in free
            if self._state.is_free(slot.device) or self._state.devices[slot.device].device.seats > 1
        ]
        for there, slot in zip(shared, lanes, strict=False):
            leaving = any(each.leaves for each in there)
            refused = self._state.studies[there[-1].study].refused
            if not leaving and slot.device not in refused:
                self._leave_if_it_can(there[-1])

    def _leave_if_it_can(self, attempt: Attempt) -> None:
        trial = self._state.trials[attempt.segment.trial]
        may = epochs_left(self._state, attempt) and can_move(self._state, trial)
        if may and not attempt.leaves:
            self._leave_device(attempt)

    def _leave_device(self, attempt: Attempt) -> None:
        attempt.leaves = True
        segment = attempt.segment
        if not attempt.cut and self._state.trials[segment.trial].epoch + 1 < segment.last:
            attempt.cut = True
            self._core.decide(Cut, trial=segment.trial, fence=segment.fence)
