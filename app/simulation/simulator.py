"""Runs the same engine and runner under simulated time, by a transport that computes reports.

Nothing is trained and nothing sleeps. Dispatched segments become reports on a heap, ordered by
simulated time and then by a counter. So ties break in the order of dispatch, and one study with one
seed has one trace. The caller's ``SimulatedWork`` gives the seconds of an epoch, and its value.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from typing import Any, Protocol

from ...profiling.base.errors import BackendError
from ...profiling.costs.interference import SharingTable
from ...profiling.costs.table import CostTable
from ...profiling.devices.device import Device
from ...scheduler.engine.engine import Engine
from ...scheduler.model.decisions import Cut, Dispatch
from ...scheduler.model.events import Event, PolicyChosen, StudySubmitted
from ...scheduler.model.study import Params, StudySpec
from ...scheduler.model.trial import AcceptedEpoch
from ...scheduler.state.state import EngineState
from ...scheduler.strategies.base import Strategy
from ...scheduler.strategies.registry import make_strategy
from ...tasks.process.messages import Forged
from ..common.clock import SimulatedClock
from ..common.ports import AttemptSeen, Message, OpenAttempt, Orders, Seen, Survey
from ..ledger.ledger import MemoryLedger
from ..optuna_bridge.samplers import SamplerHost
from ..runner.policy_host import PluginHost
from ..runner.runner import Runner

#: Simulated seconds from a dispatch to the first step, and from the last step to the report.
OVERHEAD = 0.004
#: Simulated seconds between two surveys of the devices.
SURVEY_EVERY = 60.0
#: Studies that arrive within this many simulated seconds arrive together.
INSTANT = 1e-6


class SimulatedWork(Protocol):
    """The durations and results of simulated training."""

    def epoch(self, dispatch: Dispatch, spec: StudySpec, epoch: int) -> tuple[float, float]:
        """The seconds that ``epoch`` takes, and the study's metric after it."""

    def resize(self, dispatch: Dispatch, spec: StudySpec) -> float:
        """The seconds that it takes to continue on other devices than before."""

    def stretch(self, at_work: int) -> float:
        """The factor by which an epoch takes longer when ``at_work`` trials share its device."""


@dataclass
class SimulatedTransport:
    """Devices that are always there, and reports that arrive at their simulated time."""

    clock: SimulatedClock
    devices: Sequence[Device]
    work: SimulatedWork
    #: Seconds from a dispatch to the first step, and from the last step to the report.
    overhead: float = OVERHEAD
    #: Reports to come: simulated time, tie-breaking counter, fence, and the report itself.
    _heap: list[tuple[float, int, int, dict[str, Any]]] = field(default_factory=list)
    #: The fence of the open segment of each trial.
    _open: dict[str, int] = field(default_factory=dict)
    #: The width at which each trial was trained last.
    _widths: dict[str, int] = field(default_factory=dict)
    #: The device of each open segment that may share it, by fence.
    _device_of: dict[int, str] = field(default_factory=dict)
    #: When the present epoch of each such segment began, by fence.
    _since: dict[int, float] = field(default_factory=dict)
    #: Breaks ties in the heap.
    _count: Iterator[int] = field(default_factory=count)

    def open(self) -> None:
        """Do nothing: there is nothing to create."""

    def receive(self, timeout: float) -> list[Message]:
        """The next report, with the clock set to its time; or none, with the clock advanced."""
        end = self.clock.now() + timeout
        while self._heap and self._heap[0][0] <= end:
            at, number, fence, body = heapq.heappop(self._heap)
            if self._open.get(body["trial"]) != fence:
                continue
            self.clock.advance_to(max(at, self.clock.now()))
            if fence in self._device_of:
                body["seconds"] = at - self._since[fence]
                self._since[fence] = at
            if body["closes"]:
                self._end(body["trial"])
            return [Message(str(number), "reports", body)]
        self.clock.advance_to(end)
        return []

    def carry_out(self, orders: Orders) -> None:
        """Schedule the reports of dispatched segments, and forget those of revoked ones."""
        for revoke in orders.revokes:
            if self._open.get(revoke.trial) == revoke.fence:
                self._end(revoke.trial)
        for cut in orders.cuts:
            self._cut(cut)
        for dispatch, spec in orders.dispatches:
            self._dispatch(dispatch, spec)

    def drop(self, message: Message, why: Forged) -> None:
        """Raise, because a forged message can only be a bug of the simulator."""
        raise why

    def survey(self, attempts: Sequence[OpenAttempt]) -> Survey:
        devices = {d.name: Seen(d, "simulated", draining=False) for d in self.devices}
        nothing = AttemptSeen(None, None, ())
        states = {
            a.trial: AttemptSeen(a.fence, "running", ())
            if self._open.get(a.trial) == a.fence
            else nothing
            for a in attempts
        }
        return Survey(devices, states, boot="simulated")

    def _dispatch(self, dispatch: Dispatch, spec: StudySpec) -> None:
        segment = dispatch.segment
        self._open[segment.trial] = segment.fence
        at = self.clock.now() + self.overhead
        width = len(segment.members)
        if self._widths.setdefault(segment.trial, width) != width:
            at += self.work.resize(dispatch, spec)
            self._widths[segment.trial] = width
        device = segment.members[0].device
        shared = width == 1 and self._slots[device] > 1
        at_work = 1
        if shared:
            at_work += self._at_work(device)
            self._rescale(device, at_work - 1, at_work)
            self._device_of[segment.fence], self._since[segment.fence] = device, at
        stretch = self.work.stretch(at_work)
        for epoch in range(segment.first, segment.last + 1):
            seconds, value = self.work.epoch(dispatch, spec, epoch)
            seconds *= stretch
            at += seconds
            body = {
                "kind": "epoch",
                "trial": segment.trial,
                "fence": segment.fence,
                "cause": dispatch.id,
                "epoch": epoch,
                "metrics": {spec.metric: value},
                "state_hash": f"simulated {dispatch.number}@{epoch}",
                "signature": "simulated",
                "seconds": seconds,
                "claimed": at - self.clock.now() - self.overhead,
                "closes": epoch == segment.last,
            }
            heapq.heappush(self._heap, (at, next(self._count), segment.fence, body))

    @cached_property
    def _slots(self) -> dict[str, int]:
        return {device.name: device.slots for device in self.devices}

    def _at_work(self, device: str) -> int:
        return sum(used == device for used in self._device_of.values())

    def _end(self, trial: str) -> None:
        fence = self._open.pop(trial)
        device = self._device_of.pop(fence, None)
        if device is not None:
            left = self._at_work(device)
            self._rescale(device, left + 1, left)

    def _rescale(self, device: str, before: int, after: int) -> None:
        """Reschedule what runs on ``device``, now shared by ``after`` trials, not ``before``."""
        factor = self.work.stretch(after) / self.work.stretch(before) if before and after else 1.0
        if factor == 1.0:
            return
        now = self.clock.now()
        fences = {fence for fence, used in self._device_of.items() if used == device}
        self._heap = [
            (now + (at - now) * factor if fence in fences else at, number, fence, body)
            for at, number, fence, body in self._heap
        ]
        heapq.heapify(self._heap)

    def _cut(self, cut: Cut) -> None:
        entries = [entry for entry in self._heap if entry[2] == cut.fence]
        if entries:
            min(entries)[3]["closes"] = True


@dataclass(frozen=True, slots=True)
class Simulated:
    """A simulated run: its events and its accepted epochs, in order, and its engine at the end.

    ``makespan`` is when the last study ended, in simulated seconds.
    """

    trace: tuple[Event, ...]
    epochs: tuple[AcceptedEpoch, ...]
    makespan: float
    engine: Engine


def simulate(
    studies: Sequence[StudySpec],
    devices: Sequence[Device],
    work: SimulatedWork,
    *,
    policy: str = "fifo",
    longest: float = 1e9,
    costs: CostTable | None = None,
    sharing: SharingTable | None = None,
    strategies: Callable[[StudySpec], Strategy] = make_strategy,
    arrivals: Mapping[str, float] | None = None,
    enqueued: Mapping[str, Sequence[Params]] | None = None,
    overhead: float = OVERHEAD,
    tell: Callable[[float, int], None] = lambda now, epochs: None,
) -> Simulated:
    """Run ``studies`` on ``devices`` under simulated time.

    ``costs`` and ``sharing`` are what the engine knows from the start. ``strategies`` makes the
    strategy of each study. ``arrivals`` are the times of submission by study id, 0 by default;
    ``enqueued`` are the configurations that each study tries first. ``tell`` is called repeatedly
    with the simulated time and the number of epochs trained. Raises BackendError if the studies are
    not over after ``longest`` simulated seconds.
    """
    clock = SimulatedClock()
    ledger = MemoryLedger()
    known = EngineState(costs=costs or CostTable(), sharing=sharing or SharingTable())
    engine = Engine(known, strategies)
    transport = SimulatedTransport(clock, devices, work, overhead)
    with closing(PluginHost()) as policies:
        runner = Runner(
            engine,
            ledger,
            transport,
            SamplerHost(),
            clock,
            survey_every=SURVEY_EVERY,
            policies=policies,
        )
        chosen = [PolicyChosen(at=0.0, policy=policy)] if policy != engine.state.policy else []
        runner.start(*chosen)
        runner.turn(0.0)  # the devices join
        at = {spec.id: 0.0 for spec in studies} | dict(arrivals or {})
        first = {spec.id: tuple((enqueued or {}).get(spec.id, ())) for spec in studies}
        waiting = sorted(studies, key=lambda spec: at[spec.id])
        while waiting or engine.state.studies:
            now = clock.now()
            due = [spec for spec in waiting if at[spec.id] - now < INSTANT]
            if due:
                runner.start(
                    *(StudySubmitted(at=now, study=spec, enqueued=first[spec.id]) for spec in due)
                )
                del waiting[: len(due)]
            runner.turn(min(SURVEY_EVERY, at[waiting[0].id] - now) if waiting else SURVEY_EVERY)
            tell(clock.now(), len(ledger.epochs))
            if clock.now() > longest:
                raise BackendError(f"not over after {longest:g} simulated seconds")
    trace = tuple(event for _, event in ledger.events)
    return Simulated(trace, tuple(ledger.epochs.values()), clock.now(), engine)
