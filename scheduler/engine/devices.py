"""Devices: they join, drain and leave, and the operator takes them out and gives them back.

Theory of operation. A ``Drain`` is the operator's order to give a device no more work. The order
belongs to the *name* of the device, and is separate from the draining that the device's worker
reports (``DeviceState.draining``). So the order stays in force when the worker restarts, and when
the node leaves and joins again. Only the operator lifts it. A trial that runs on such a *held*
device is stopped at the end of its epoch and continues on another device. If the order has a
deadline, an attempt that is still running at the deadline is revoked: its current epoch is lost and
computed again on another device. This does not count as a loss of the trial or of the device.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ..model.decisions import Release
from ..model.events import (
    DeviceDraining,
    DeviceJoined,
    DeviceLeft,
    DevicesGivenBack,
    DevicesTakenOut,
    LedgerRestored,
    PricesChosen,
    Tick,
)
from ..model.study import trial_id
from ..model.trial import Step, Trial
from ..resources.unable import exclude_unable
from ..state.core import Core, Refused
from ..state.state import ERA, DeviceRecord, DeviceState, Drain
from .attempts import Attempts
from .proposals import Proposals

#: After a restore from a backup, the engine does not know which trials were created since the
#: backup. It assumes that a study has at most ``n_trials`` plus this number: forks and extensions.
FORGOTTEN_TRIALS = 100


class Devices:
    """Handles events about devices, and carries out the operator's drains."""

    def __init__(
        self,
        core: Core,
        *,
        proposals: Proposals,
        attempts: Attempts,
    ) -> None:
        self._core = core
        self._state = core.state
        self._proposals = proposals
        self._attempts = attempts

    def on_devices_taken_out(self, event: DevicesTakenOut) -> None:
        for name in event.devices:
            self._core.device(name)
        new = [name for name in event.devices if name not in self._state.held]
        if not new and event.deadline is None:
            raise Refused(f"{', '.join(event.devices)}: taken out already")
        for name in new:
            self._state.held[name] = Drain()
            self._core.cut_all(name)
            self._core.note_device(name)
        if event.deadline is not None:
            for name in event.devices:
                self._state.held[name].deadline = event.deadline
        self._core.invalidate_plan()
        self._core.offer_slots()

    def on_devices_given_back(self, event: DevicesGivenBack) -> None:
        drained = [name for name in event.devices if name in self._state.held]
        if not drained:
            raise Refused(f"{', '.join(event.devices)}: not taken out")
        for name in drained:
            last_record = self._state.held.pop(name).gone
            if last_record is None:
                self._core.note_device(name)
            else:
                self._core.changes.devices[name] = replace(last_record, state="left")
        self._core.invalidate_plan()
        self._core.offer_slots()

    def _record_departure(self, name: str, reason: str) -> None:
        """Record that a device leaves. The operator's drain of the device stays."""
        device, drain = self._state.devices[name], self._state.held.get(name)
        state = "left" if drain is None else "held"
        record = DeviceRecord(device.device, device.incarnation, state, self._core.at, reason)
        self._core.changes.devices[name] = record
        if drain is not None:
            drain.gone = record

    def deadlines(self) -> Iterator[float]:
        """Yield the times (of the runner's clock) at which drains revoke attempts."""
        for name, drain in self._state.held.items():
            device = self._state.devices.get(name)
            if drain.deadline is not None and device is not None and any(device.fences):
                yield drain.deadline

    def _revoke_overdue(self) -> None:
        for name, drain in self._state.held.items():
            is_overdue = drain.deadline is not None and drain.deadline <= self._core.at
            if is_overdue and name in self._state.devices:
                for fence in self._core.fences_on(name):
                    self._requeue(self._state.trials[self._state.attempts[fence].segment.trial])

    def _requeue(self, trial: Trial) -> None:
        self._core.revoke(trial)
        self._core.move(self._state.studies[trial.study], trial, Step.LOSE)
        self._proposals.wait(trial, first=True)

    def on_ledger_restored(self, event: LedgerRestored) -> None:
        """Start a new range of fences after a restore, so that no fence is used twice.

        The fences that were used between the backup and the restore are unknown. Trials that were
        created in this time are unknown, too, and a new trial may get the id of such a forgotten
        trial, with other parameters. So workers drop the states of all trials that may have been
        forgotten. Slots are not filled by this event but by a later one, because a release in the
        same batch as a dispatch would undo the dispatch.
        """
        for attempt in list(self._state.attempts.values()):
            self._requeue(self._state.trials[attempt.segment.trial])
        self._state.fence = max(self._state.fence // ERA + 1, int(event.at)) * ERA
        for study in self._state.studies.values():
            max_trials = max(study.spec.n_trials, len(study.trials)) + FORGOTTEN_TRIALS
            for number in range(max_trials):
                self._core.decide(Release, trial=trial_id(study.spec.id, number))
        self._core.invalidate_plan()

    def on_device_joined(self, event: DeviceJoined) -> None:
        name = event.device.name
        device = self._state.devices.get(name)
        if device is not None:
            if device.incarnation == event.incarnation and not device.draining:
                raise Refused(f"{name} has joined already")
            self._attempts.lose_all(name, "its worker was started anew")
        if (drain := self._state.held.get(name)) is not None:
            drain.gone = None
        self._state.devices[name] = DeviceState(
            event.device, event.incarnation, [0] * event.device.slots
        )
        for study in self._state.studies.values():
            if study.refused.pop(name, None) is not None:
                study.machines.pop(name, None)
            exclude_unable(self._core, study, [event.device])
        self._device_changed(name)

    def on_device_draining(self, event: DeviceDraining) -> None:
        device = self._core.device(event.device)
        if device.draining:
            raise Refused(f"{event.device} is draining already")
        device.draining = True
        self._core.cut_all(event.device)
        self._device_changed(event.device)

    def on_device_left(self, event: DeviceLeft) -> None:
        self._core.device(event.device)
        self._attempts.lose_all(event.device, event.reason)
        self._record_departure(event.device, event.reason)
        del self._state.devices[event.device]
        self._core.invalidate_plan()
        self._core.offer_slots()

    def _device_changed(self, name: str) -> None:
        self._core.note_device(name)
        self._core.invalidate_plan()
        self._core.offer_slots()

    def on_prices_chosen(self, event: PricesChosen) -> None:
        self._state.prices = dict(event.prices)
        devices = [each.device for each in self._state.devices.values()]
        for study in self._state.studies.values():
            exclude_unable(self._core, study, devices)
        self._core.offer_slots()

    def on_tick(self, event: Tick) -> None:
        self._revoke_overdue()
        self._core.offer_slots()
