"""Devices of a runner under a simulated clock, without lanes, shared slots and windows.

Tests of the core use them, so that they need no extension: ``extensions/simulation`` has devices
that know all of it.
"""

from __future__ import annotations

import heapq
from itertools import count

from penstock.app.common.ports import AttemptStatus, LiveDevice, Message, Survey

#: Simulated seconds from a dispatch to the first step, and from the last step to the report.
OVERHEAD = 0.004


class PlainDevices:
    """A transport: nothing is trained, and reports of segments come at their simulated time.

    ``work.epoch(dispatch, spec, epoch)`` is the seconds that an epoch takes and its value.
    """

    def __init__(self, clock, devices, work, overhead=OVERHEAD):
        self.clock, self.devices, self.work, self.overhead = clock, devices, work, overhead
        self._heap = []
        self._open = {}
        self._count = count()

    def open(self):
        pass

    def receive(self, timeout):
        end = self.clock.now() + timeout
        while self._heap and self._heap[0][0] <= end:
            at, number, fence, body = heapq.heappop(self._heap)
            if self._open.get(body["trial"]) != fence:
                continue
            self.clock.advance_to(max(at, self.clock.now()))
            if body.get("closes", True):
                del self._open[body["trial"]]
            return [Message(str(number), "reports", body)]
        self.clock.advance_to(end)
        return []

    def carry_out(self, effects):
        for revoke in effects.revokes:
            if self._open.get(revoke.trial) == revoke.fence:
                del self._open[revoke.trial]
        for cut in effects.cuts:
            if entries := [entry for entry in self._heap if entry[2] == cut.fence]:
                min(entries)[3]["closes"] = True
        for dispatch, spec in effects.dispatches:
            self._dispatch(dispatch, spec)

    def drop(self, message, why):
        raise why

    def scripts(self, studies):
        return studies

    def survey(self, attempts):
        devices = {d.name: LiveDevice(d, "simulated", draining=False) for d in self.devices}
        states = {}
        for each in attempts:
            runs = self._open.get(each.trial) == each.fence
            states[each.trial] = AttemptStatus(
                each.fence if runs else None, "running" if runs else None, ()
            )
        return Survey(devices, states, boot="simulated")

    def _dispatch(self, dispatch, spec):
        segment = dispatch.segment
        assert not segment.widths, "these devices measure no widths"
        self._open[segment.trial] = segment.fence
        begun = at = self.clock.now() + self.overhead
        for epoch in range(segment.first, segment.last + 1):
            seconds, value = self.work.epoch(dispatch, spec, epoch)
            at += seconds
            body = {
                "kind": "epoch",
                "trial": segment.trial,
                "fence": segment.fence,
                "cause": dispatch.id,
                "epoch": epoch,
                "metrics": {spec.metric: value},
                "state_hash": f"simulated {self.state(dispatch, spec, epoch)}@{epoch}",
                "signature": "simulated",
                "seconds": seconds,
                "memory": 0,
                "claimed": at - begun,
                "closes": epoch == segment.last,
            }
            heapq.heappush(self._heap, (at, next(self._count), segment.fence, body))

    @staticmethod
    def state(dispatch, spec, epoch):
        """Return the name of a trial's state: the same where epochs are in common."""
        if spec.seeding != "shared":
            return dispatch.number
        begun = ((name, int(name.partition("@")[2] or 0)) for name, _ in dispatch.params)
        in_force = {name for name, first in begun if first < epoch}
        same = [each for each in dispatch.params if each[0] in in_force]
        return f"{same} {dispatch.number % spec.replicates}"
