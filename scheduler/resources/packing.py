"""Packing: the trials that are at work together on a device, and the choice of those that leave.

Theory of operation. When a device holds more trials than it may (``slots.slot_limit``), the newest
trials leave it at the end of their epoch. One of several trials on a device also leaves when
another device is empty. While a trial is about to leave, the device gets no new trial, and the
trial that has left is first in the queue. A trial that would have to start over elsewhere stays: an
Optuna objective, or an epoch function whose last epoch has no checkpoint.

If lanes have several seats, an extension decides which trials leave (``Extension.seats``).
"""

from __future__ import annotations

from collections.abc import Sequence

from ..model.decisions import Cut, Member
from ..state.core import Core
from ..state.state import Attempt
from .slots import can_move, epochs_left, slot_limit


class Packing:
    """Records which trials share a device, and makes trials leave it."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._state = core.state
        self._extensions = core.extensions

    def at_work_changed(self) -> None:
        """Record the trials at work on each device on which this event started or ended attempts.

        Call this after the event is handled.
        """
        for name in sorted(self._core.touched & self._state.devices.keys()):
            self._record_at_work(name)

    def _record_at_work(self, name: str) -> None:
        """Record the trials now at work on the device, and the time of the change.

        New trials count as cold, as they have no accepted epoch on this device.
        """
        device = self._state.devices[name]
        now = [each.segment.trial for each in self._state.attempts_on(name)]
        if sorted(now) != sorted(device.at_work):
            device.cold = [t for t in now if t in device.cold or t not in device.at_work]
            device.at_work = now
            if device.device.seats == 1:
                device.since = self._core.at
        if device.device.seats > 1 and device.in_use != (lanes := device.lanes_in_use()):
            device.in_use, device.since = lanes, self._core.at

    def rebalance(self, free: Sequence[Member]) -> None:
        """Make trials leave devices that hold too many, or that they need not share.

        A trial need not share a device if another device is empty. Trials leave at the end of their
        epoch. ``free`` are the free slots.
        """
        empty = [slot.device for slot in free if self._state.is_free(slot.device)]
        self._extensions.seats.use_lanes(free)
        for name, device in self._state.devices.items():
            if device.device.slots == 1:
                continue
            if device.device.seats > 1:
                self._extensions.seats.thin_out(name)
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
                refusals = self._state.studies[attempt.study].refused
                if empty and refusals.keys() >= set(empty):
                    continue
                leave_device(self._core, attempt)
                excess -= 1
                empty = empty[1:]

    def _limit(self, name: str) -> int:
        return slot_limit(self._state, self._extensions, name).slots


def leave_if_it_can(core: Core, attempt: Attempt) -> None:
    """Make a trial leave its slot at the end of its epoch, if it can continue elsewhere.

    A trial in the last epoch before its target is left alone.
    """
    trial = core.state.trials[attempt.segment.trial]
    may = epochs_left(core.state, attempt) and can_move(core.state, trial)
    if may and not attempt.leaves:
        leave_device(core, attempt)


def leave_device(core: Core, attempt: Attempt) -> None:
    """Make a trial leave its slot at the end of its epoch."""
    attempt.leaves = True
    segment = attempt.segment
    if not attempt.cut and core.state.trials[segment.trial].epoch + 1 < segment.last:
        attempt.cut = True
        core.decide(Cut, trial=segment.trial, fence=segment.fence)
