"""Simulated devices, which train nothing but send the reports of segments at simulated times.

Future reports are in a heap, ordered by simulated time and then by a counter. So ties are broken in
the order of dispatch, and a study with the same seed always has the same trace. The caller's
``SimulatedWork`` gives the seconds and the value of each epoch.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count
from random import Random
from typing import Any, Protocol

from ....app.common.clock import SimulatedClock
from ....app.common.ports import AttemptStatus, Effects, LiveDevice, Message, OpenAttempt, Survey
from ....app.extensions import of_ends
from ....profiling.costs.width_window import COUNTED, MIN_STEPS, STEPS, WidthWindow
from ....profiling.devices.device import Device
from ....scheduler.model.decisions import Cut, Dispatch, Segment
from ....scheduler.model.study import StudySpec
from ....wire.messages import Forged
from .device_memory import GIB, UNKNOWN, DeviceMemory, MemoryNeed
from .lane_turns import Entry, LaneTurns

#: The default overhead of a segment in simulated seconds: dispatch to first step, plus last step to
#: report. The simulation puts all of this time before the first step.
OVERHEAD = 0.004
#: The noise of measured step times: the standard deviation of the logarithm of one step's time.
NOISE = 0.03


class SimulatedWork(Protocol):
    """The durations and results of simulated training, which the simulation's caller provides."""

    def epoch(self, dispatch: Dispatch, spec: StudySpec, epoch: int) -> tuple[float, float]:
        """Return the seconds that ``epoch`` takes, and the study's metric after the epoch."""

    def resize(self, dispatch: Dispatch, spec: StudySpec) -> float:
        """Return the seconds that a trial needs to continue on another number of devices."""

    def steps(self, dispatch: Dispatch, spec: StudySpec) -> int:
        """Return the number of training steps in an epoch."""

    def slowdown(self, at_work: int) -> float:
        """Return the slowdown of an epoch if ``at_work`` trials share its device.

        The slowdown is the epoch's time divided by the time that the epoch takes alone.
        """


@dataclass
class SimulatedTransport:
    """A transport to simulated devices, which are always available.

    Each report arrives when the simulated clock reaches its time.
    """

    clock: SimulatedClock
    devices: Sequence[Device]
    work: SimulatedWork
    #: The overhead of a segment in simulated seconds, as for ``OVERHEAD``.
    overhead: float = OVERHEAD
    #: Returns the memory need of a segment's trial.
    needs: Callable[[Segment], MemoryNeed] = lambda _: UNKNOWN
    #: Returns the slowdown of a fused group from a study's id and the number of trials in the
    #: group.
    group_slowdown: Callable[[str, int], float] = lambda _study, _size: 1.0
    #: Returns the watts of each device of a trial in an epoch, or 0 if the power is not measured.
    watts: Callable[[str, int], float] = lambda _trial, _epoch: 0.0
    #: Future reports, ordered as a heap.
    _heap: list[Entry] = field(default_factory=list)
    #: By trial: the fence of the trial's open segment.
    _open: dict[str, int] = field(default_factory=dict)
    #: By trial: the number of devices on which the trial was last trained.
    _widths: dict[str, int] = field(default_factory=dict)
    #: By fence: the device of each open segment that may share its device without taking turns.
    _device_of: dict[int, str] = field(default_factory=dict)
    #: By fence: the start of the current epoch of each segment in ``_device_of``.
    _since: dict[int, float] = field(default_factory=dict)
    #: By fence: the time at which an open segment is to close with its epoch, because a limit of
    #: its study is near.
    _until: dict[int, float] = field(default_factory=dict)
    #: By fence: the times at which each width of an open window will have been measured. A window
    #: is a segment that measures the speed of a trial on several numbers of devices.
    _ends: dict[int, list[float]] = field(default_factory=dict)
    #: A counter that breaks ties in the heap.
    _count: Iterator[int] = field(default_factory=count)

    def __post_init__(self) -> None:
        self._memory = DeviceMemory(self.devices)
        #: The trials that take turns, on devices whose lanes have several seats.
        self._turns = LaneTurns(self.group_slowdown)

    def open(self) -> None:
        """Do nothing, since there is nothing to create."""

    def receive(self, timeout: float) -> list[Message]:
        """Return the next report, and set the clock to the time of the report.

        If no report comes within ``timeout`` simulated seconds, set the clock to the end of this
        time and return an empty list.
        """
        end = self.clock.now() + timeout
        while self._heap and self._heap[0][0] <= end:
            at, number, fence, body = heapq.heappop(self._heap)
            if self._open.get(body["trial"]) != fence:
                continue
            self.clock.advance_to(max(at, self.clock.now()))
            if body["kind"] == "epoch":
                self._time(body, fence, at)
            if body.get("closes", True):
                self._end(body["trial"])
            return [Message(str(number), "reports", body)]
        self.clock.advance_to(end)
        return []

    def _time(self, body: dict[str, Any], fence: int, at: float) -> None:
        """Add to an epoch's report the times that depend on other trials on the same device.

        ``at`` is the time of the report. Also add the energy if it is measured, and close the
        segment if a limit of its study is near.
        """
        if fence in self._device_of:
            body["seconds"] = at - self._since[fence]
            self._since[fence] = at
        elif fence in self._turns:
            size = self._turns.group_size(fence)
            if size > 1:
                body |= {"together": size, "alone": body["seconds"]}
            else:
                body |= {"company": self._turns.expected(fence)}
            body["seconds"] = self._turns.seconds(fence, at)
        if watts := self.watts(body["trial"], body["epoch"]):
            body["joules"] = watts * body["seconds"] * self._widths[body["trial"]]
        if at >= self._until.get(fence, math.inf):
            body["closes"] = True

    def carry_out(self, effects: Effects) -> None:
        """Schedule the reports of dispatched segments, and drop the reports of revoked segments."""
        for revoke in effects.revokes:
            if self._open.get(revoke.trial) == revoke.fence:
                self._end(revoke.trial)
        for cut in effects.cuts:
            self._cut(cut)
        for dispatch, spec in effects.dispatches:
            self._dispatch(dispatch, spec)

    def drop(self, message: Message, why: Forged) -> None:
        """Raise ``why``, because a forged message can only be a bug of the simulator."""
        raise why

    def scripts(self, studies: Collection[str]) -> Collection[str]:
        """Return all ``studies``: in a simulation, no study's script can end early."""
        return studies

    def survey(self, attempts: Sequence[OpenAttempt]) -> Survey:
        devices = {d.name: LiveDevice(d, "simulated", draining=False) for d in self.devices}
        nothing = AttemptStatus(None, None, ())
        states = {
            a.trial: AttemptStatus(a.fence, "running", ())
            if self._open.get(a.trial) == a.fence
            else nothing
            for a in attempts
        }
        return Survey(devices, states, boot="simulated")

    def _dispatch(self, dispatch: Dispatch, spec: StudySpec) -> None:
        segment = dispatch.segment
        self._open[segment.trial] = segment.fence
        if dispatch.until is not None:
            self._until[segment.fence] = dispatch.until
        at = self.clock.now() + self.overhead
        width = len(segment.members)
        need = self.needs(segment)
        peak = need.peak(width)
        full = self._memory.claim(segment.fence, segment.members, need)
        if full:
            self._run_out_of_memory(dispatch, full, peak)
            return
        if not segment.widths and self._widths.setdefault(segment.trial, width) != width:
            at += self.work.resize(dispatch, spec)
            self._widths[segment.trial] = width
        device, at_work = segment.members[0].device, 1
        if width == 1 and self._devices[device].seats > 1:
            at_work = self._take_seat(dispatch.study, segment, at)
        elif width == 1 and self._devices[device].slots > 1:
            at_work += self._at_work(device)
            self._rescale(device, at_work - 1, at_work)
            self._device_of[segment.fence], self._since[segment.fence] = device, at
        if segment.widths:
            self._measure(dispatch, spec, at)
            return
        slowdown = self.work.slowdown(at_work)
        alike_names = (
            at(spec, dispatch.number, dispatch.params) for at in of_ends("scheduler", "alike_at")
        )
        alike = [name for name in alike_names if name is not None]
        for epoch in range(segment.first, segment.last + 1):
            seconds, value = self.work.epoch(dispatch, spec, epoch)
            seconds *= slowdown
            at += seconds
            bits = alike[0](epoch) if alike else dispatch.number
            body = {
                "kind": "epoch",
                "trial": segment.trial,
                "fence": segment.fence,
                "cause": dispatch.id,
                "epoch": epoch,
                "metrics": {spec.metric: value},
                "state_hash": f"simulated {bits}@{epoch}",
                "signature": "simulated",
                "seconds": seconds,
                "memory": peak,
                "claimed": at - self.clock.now() - self.overhead,
                "closes": epoch == segment.last,
            }
            heapq.heappush(self._heap, (at, next(self._count), segment.fence, body))
        if segment.fence in self._turns:
            weights = dispatch.ext.get("lanes", {}).get("weights", {})
            self._turns.weigh(self._heap, self.clock.now(), segment.fence, weights)

    def _take_seat(self, study: str, segment: Segment, begins: float) -> int:
        """Take a seat in a lane for ``segment``.

        Return the number of lanes of its device that are busy afterwards.
        """
        [member] = segment.members
        before = len(self._turns.lanes_at_work(member.device))
        lane = member.device, self._devices[member.device].lane(member.slot)
        self._turns.enter(segment.fence, segment.trial, study, lane, begins)
        after = len(self._turns.lanes_at_work(member.device))
        self._rescale(member.device, before, after)
        return after

    def _run_out_of_memory(self, dispatch: Dispatch, device: str, peak: int) -> None:
        """Schedule the report that an attempt ran out of memory on ``device``.

        ``peak`` is the number of bytes that the attempt needs on each of its devices.
        """
        segment = dispatch.segment
        free = self._memory.free(device)
        body = {
            "kind": "failed",
            "trial": segment.trial,
            "fence": segment.fence,
            "cause": dispatch.id,
            "failure": "memory",
            "message": f"{peak / GIB:.2f} GiB are needed on {device}, {free / GIB:.2f} are free",
            "traceback": "",
        }
        heapq.heappush(self._heap, (self.clock.now(), next(self._count), segment.fence, body))

    def _measure(self, dispatch: Dispatch, spec: StudySpec, at: float) -> None:
        """Schedule the report of a window, in which a trial's speed at several widths is measured.

        The window starts at ``at`` (simulated seconds).
        """
        segment, chance = dispatch.segment, Random(dispatch.segment.fence)  # noqa: S311 - no secret
        ends: list[float] = []
        window = WidthWindow(segment.widths, math.inf)
        per_epoch, meeting, met = self.work.steps(dispatch, spec), 0.0, False
        for width in window.remaining() if dispatch.width_epochs * per_epoch >= MIN_STEPS else ():
            if width > 1 and not met:
                time_limit = window.meeting_seconds()
                meeting = min(time_limit, self.work.resize(dispatch, spec))
                met = meeting < time_limit
                window.spent += meeting
                if not met:
                    break
            members = tuple(segment.members[:width])
            narrow = replace(dispatch, segment=replace(segment, members=members))
            seconds = self.work.epoch(narrow, spec, segment.first)[0] / per_epoch
            window.spent += seconds if window.is_hopeless(seconds) else STEPS * seconds
            window.found[width] = seconds * math.exp(chance.gauss(0.0, NOISE / COUNTED**0.5))
            ends.append(at + window.spent)
            if width == 1:
                window.limit = dispatch.width_epochs * per_epoch * seconds
        self._ends[segment.fence] = ends
        body = {
            "kind": "widths",
            "trial": segment.trial,
            "fence": segment.fence,
            "cause": dispatch.id,
            "seconds": [*window.found.items()],
            "steps": per_epoch,
            "meeting": meeting,
            "met": met,
        }
        heapq.heappush(self._heap, (at + window.spent, next(self._count), segment.fence, body))

    @cached_property
    def _devices(self) -> dict[str, Device]:
        return {device.name: device for device in self.devices}

    def _at_work(self, device: str) -> int:
        return sum(name == device for name in self._device_of.values())

    def _end(self, trial: str) -> None:
        fence = self._open.pop(trial)
        self._memory.release(fence)
        self._ends.pop(fence, None)
        self._until.pop(fence, None)
        device = self._device_of.pop(fence, None)
        if device is not None:
            remaining = self._at_work(device)
            self._rescale(device, remaining + 1, remaining)
        elif fence in self._turns:
            device = self._turns.device(fence)
            before = len(self._turns.lanes_at_work(device))
            self._turns.leave(self._heap, self.clock.now(), fence)
            self._rescale(device, before, len(self._turns.lanes_at_work(device)))

    def _rescale(self, device: str, before: int, after: int) -> None:
        """Reschedule the reports of ``device`` when its number of running trials changes.

        ``before`` and ``after`` are the numbers of trials, or of busy lanes if the lanes have
        several seats.
        """
        factor = self.work.slowdown(after) / self.work.slowdown(before) if before and after else 1.0
        if factor == 1.0:
            return
        now = self.clock.now()
        fences = {fence for fence, name in self._device_of.items() if name == device}
        fences |= self._turns.slow_down(device, factor)
        self._heap = [
            (now + (at - now) * factor if fence in fences else at, number, fence, body)
            for at, number, fence, body in self._heap
        ]
        heapq.heapify(self._heap)

    def _cut(self, cut: Cut) -> None:
        entries = [entry for entry in self._heap if entry[2] == cut.fence]
        entries += self._turns.parked(cut.fence)
        if not entries:
            return
        _, number, fence, body = min(entries)
        if body["kind"] == "epoch":
            body["closes"] = True
        if body["kind"] == "widths":  # it ends now, with what was measured so far
            now = self.clock.now()
            ends = self._ends[fence]
            body["seconds"] = body["seconds"][: sum(end <= now for end in ends)]
            if ends and now < ends[0] + body["meeting"]:
                body["met"], body["meeting"] = False, max(0.0, now - ends[0])
            self._heap.remove(min(entries))
            heapq.heapify(self._heap)
            heapq.heappush(self._heap, (now, number, fence, body))
