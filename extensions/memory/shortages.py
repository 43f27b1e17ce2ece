"""Shortages: an attempt ran out of memory. Find the trial at fault, and raise its assumed need.

Theory of operation. The kernel, or the device, ends the process that asks last, which may be the
one that needs least. Measured needs are true, so the fault is looked for among the others:

* *A neighbour's fault*: the trial's own need was measured, and that of a neighbour was not. The
  neighbour is taken to need ``RAISE`` times as much, and the trial goes back to the queue.
* *Its own fault*, otherwise: the trial is taken to need ``RAISE`` times as much. After ``TOGETHER``
  shortages together with others it shares no device any more.
* *Alone*: it goes on where a larger device is. Else it cannot be trained here, and fails for good.
  Samplers see it as a bad trial (``app.server.optuna_bridge``).

A shortage together with others is no failure of the trial's code, so it does not count as one. If
the memory of the device or the need of the trial is not known, or if the user limits the trial's
memory, the trial shares no device from the first shortage on.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...profiling.devices.device import Device
from ...scheduler.model.events import AttemptFailed
from ...scheduler.model.trial import Trial
from ...scheduler.state.core import Core
from ...scheduler.state.state import Attempt, StudyState
from .fit import has_larger, need
from .known import known_trial, note_trial

#: Factor on a trial's assumed need after a shortage.
RAISE = 1.25
#: Shortages together with others after which a trial shares no device any more.
TOGETHER = 3


class Shortages:
    """Learns from attempts that ran out of memory."""

    def __init__(self, core: Core) -> None:
        self._state = core.state

    def excuses(self, study: StudyState, trial: Trial, event: AttemptFailed) -> bool:
        """Return True if the failed attempt is not held against the trial.

        That is so if it ran out of memory together with others, or if a larger device is there.
        """
        killed = event.kind == "died" and "signal 9" in event.message
        members = self._state.attempts[event.fence].segment.members
        if not (event.kind == "memory" or killed) or len(members) > 1:
            return False
        device = self._state.devices[members[0].device].device
        at_work = self._state.attempts_on(device.name)
        neighbours = [each for each in at_work if each.segment.trial != trial.id]
        if not neighbours:
            return event.kind == "memory" and self._can_have_more(trial, device)
        record = note_trial(self._state, trial)
        if record.alone:
            return False
        record.shortages += 1
        limited = study.spec.memory_limit is not None
        size = need(self._state, trial, device.kind).size
        if limited or not size or device.memory is None or record.shortages >= TOGETHER:
            record.alone = True
        elif not (record.peaks.get(device.kind) and self._blame(neighbours, device)):
            record.floors[device.kind] = round(RAISE * size)
        return True

    def _can_have_more(self, trial: Trial, device: Device) -> bool:
        """Note that it needs more than all of the device; whether there is a larger one."""
        if device.memory is None:
            return False
        floors = note_trial(self._state, trial).floors
        floors[device.kind] = max(floors.get(device.kind, 0), device.memory + 1)
        return has_larger(self._state, trial, device)

    def _blame(self, others: Sequence[Attempt], device: Device) -> bool:
        """Raise what is believed of the trials there that were not measured; whether any is."""
        neighbours = [self._state.trials[each.segment.trial] for each in others]
        unmeasured = [
            each for each in neighbours if not known_trial(self._state, each).peaks.get(device.kind)
        ]
        for each in unmeasured:
            floors = note_trial(self._state, each).floors
            floors[device.kind] = round(RAISE * need(self._state, each, device.kind).size)
        return bool(unmeasured)
