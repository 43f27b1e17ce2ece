"""Shortages: finds the trial at fault if an attempt ran out of memory, and raises its assumed need.

Theory of operation. If memory runs out, the process that asks last is ended, which may be the one
that needs least. Measured needs are reliable, so the fault is looked for among the other trials:

* *A neighbour's fault*: the trial's own need was measured, and that of a neighbour was not. The
  neighbour is taken to need ``RAISE`` times as much, and the trial goes back to the queue.
* *Its own fault*, otherwise: the trial is taken to need ``RAISE`` times as much. After ``TOGETHER``
  shortages next to others it shares no device any more.
* *Alone*, without neighbours: the trial continues if there is a larger device. Otherwise it cannot
  be trained here, and fails for good. Samplers treat it as a bad trial
  (``app.server.optuna_bridge``).

A shortage next to others is not counted as a failure, since the trial's code is not at fault. If
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
#: Number of shortages next to others after which a trial shares no device any more.
TOGETHER = 3


class Shortages:
    """Learns from attempts that ran out of memory."""

    def __init__(self, core: Core) -> None:
        self._state = core.state

    def excuses(self, study: StudyState, trial: Trial, event: AttemptFailed) -> bool:
        """Return True if the failed attempt does not count as a failure of the trial.

        It does not count if it ran out of memory next to others, or if there is a larger device.
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
        """Record that the trial needs more memory than the device has.

        Returns True if a device with more memory exists.
        """
        if device.memory is None:
            return False
        floors = note_trial(self._state, trial).floors
        floors[device.kind] = max(floors.get(device.kind, 0), device.memory + 1)
        return has_larger(self._state, trial, device)

    def _blame(self, others: Sequence[Attempt], device: Device) -> bool:
        """Raise the assumed needs of unmeasured neighbours; return True if there are any."""
        neighbours = [self._state.trials[each.segment.trial] for each in others]
        unmeasured = [
            each for each in neighbours if not known_trial(self._state, each).peaks.get(device.kind)
        ]
        for each in unmeasured:
            floors = note_trial(self._state, each).floors
            floors[device.kind] = round(RAISE * need(self._state, each, device.kind).size)
        return bool(unmeasured)
