"""Devices that the operator takes out and gives back.

Theory of operation. A ``Hold`` is the operator's word on a device's *name*, kept apart from what
the device's worker says of itself (``DeviceState.draining``). So neither a worker that is started
anew nor a node that leaves and joins again lifts it; only the operator does. What runs on a device
taken out is cut at the end of its epoch and goes on elsewhere. With a deadline, what runs longer is
revoked: the epoch that it was in is lost and replayed elsewhere. Nobody is to blame for that, so it
counts as a loss neither of the trial nor of the device.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from .events import DevicesGivenBack, DevicesTakenOut
from .placing import Placing
from .record import Refused
from .state import DeviceRecord, Hold
from .trial import Step, Trial


class Holding(Placing):
    """Carries out the operator's word on devices."""

    def _on_devices_taken_out(self, event: DevicesTakenOut) -> None:
        for name in event.devices:
            self._device(name)
        fresh = [name for name in event.devices if name not in self.state.held]
        if not fresh and event.deadline is None:
            raise Refused(f"{', '.join(event.devices)}: taken out already")
        for name in fresh:
            self.state.held[name] = Hold()
            self._cut_all(name)
            self._note_device(name)
        if event.deadline is not None:
            for name in event.devices:
                self.state.held[name].deadline = event.deadline
        self.state.dirty = True
        self._fill()

    def _on_devices_given_back(self, event: DevicesGivenBack) -> None:
        held = [name for name in event.devices if name in self.state.held]
        if not held:
            raise Refused(f"{', '.join(event.devices)}: not taken out")
        for name in held:
            gone = self.state.held.pop(name).gone
            if gone is None:
                self._note_device(name)
            else:
                self._changes.devices[name] = replace(gone, state="left")
        self.state.dirty = True
        self._fill()

    def _note_gone(self, name: str, reason: str) -> None:
        """A device leaves, and keeps its hold."""
        known, hold = self.state.devices[name], self.state.held.get(name)
        state = "left" if hold is None else "held"
        record = DeviceRecord(known.device, known.incarnation, state, self._at, reason)
        self._changes.devices[name] = record
        if hold is not None:
            hold.gone = record

    def _deadlines(self) -> Iterator[float]:
        """When there will be something to revoke (the runner's clock)."""
        for name, hold in self.state.held.items():
            known = self.state.devices.get(name)
            if hold.deadline is not None and known is not None and any(known.fences):
                yield hold.deadline

    def _end_deadlines(self) -> None:
        for name, hold in self.state.held.items():
            due = hold.deadline is not None and hold.deadline <= self._at
            if due and name in self.state.devices:
                for fence in self._fences_on(name):
                    self._take_away(self.state.trials[self.state.attempts[fence].segment.trial])

    def _take_away(self, trial: Trial) -> None:
        self._revoke(trial)
        self._move(self.state.studies[trial.study], trial, Step.LOSE)
        self._wait(trial, first=True)
