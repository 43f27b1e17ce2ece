"""Packing: which trials are at work together on one device, and which of them leaves it.

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
from ..state.core import Core
from ..state.lane_time import residents
from ..state.state import Attempt
from .lanes import without_gain
from .slots import at_once, can_move, epochs_left, slot_limit


class Packing:
    """Notes who shares a device, and has trials leave it."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._state = core.state
        self._extensions = core.extensions

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
            excess = max(len(attempts) - self._limit(name), min(1, len(empty)))
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

    def _without_gain(self, there: Sequence[Attempt]) -> Attempt | None:
        return without_gain(self._state, self._extensions.company, there)

    def _limit(self, name: str) -> int:
        return slot_limit(self._state, self._extensions, name).slots

    def _thin_out(self, name: str) -> None:
        """Have residents leave where too many lanes are in use, or one has too little memory."""
        device = self._state.devices[name]
        lanes = {lane: residents(self._state, device, lane) for lane in device.lanes_in_use()}
        excess = at_once(self._state, name) - self._limit(name)
        newest = sorted(lanes, key=lambda lane: lanes[lane][0].segment.fence)
        for lane in newest[max(1, len(newest) - excess) :] if excess > 0 else ():
            for attempt in lanes[lane]:
                self._leave_if_it_can(attempt)
        for there in lanes.values():
            trials = [self._state.trials[each.segment.trial] for each in there]
            if len(there) > 1 and self._extensions.overfull(device.device, trials):
                self._leave_if_it_can(there[-1])
            elif (gains_nothing := self._without_gain(there)) is not None:
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
