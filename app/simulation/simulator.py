"""Runs the same engine and runner under simulated time, by a transport that computes reports.

Nothing is trained and nothing sleeps. Dispatched segments become reports on a heap, ordered by
simulated time and then by a counter. So ties break in the order of dispatch, and one study with one
seed has one trace. The caller's ``SimulatedWork`` gives the seconds of an epoch, and its value.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count
from random import Random
from typing import Protocol

from ...profiling.base.errors import BackendError
from ...profiling.costs.interference import SharingTable
from ...profiling.costs.table import CostTable
from ...profiling.costs.width_window import COUNTED, MIN_STEPS, STEPS, WidthWindow
from ...profiling.devices.device import Device
from ...profiling.memory.footprint import Footprint
from ...scheduler.engine.engine import Engine
from ...scheduler.model.decisions import Cut, Dispatch, Segment
from ...scheduler.model.events import Event, FootprintReported, PolicyChosen, StudySubmitted
from ...scheduler.model.study import Params, StudySpec
from ...scheduler.model.trial import AcceptedEpoch
from ...scheduler.policies.registry import CROSS_STUDY
from ...scheduler.prefixes.chain import has_prefixes, link_at, links_of
from ...scheduler.state.state import EngineState
from ...scheduler.strategies.base import Strategy
from ...scheduler.strategies.registry import make_strategy
from ...tasks.process.messages import Forged
from ..advice.policy_host import PluginHost
from ..common.clock import SimulatedClock
from ..common.ports import AttemptStatus, Effects, LiveDevice, Message, OpenAttempt, Survey
from ..ledger.ledger import MemoryLedger
from ..optuna_bridge.samplers import SamplerHost
from ..runner.runner import Runner
from .device_memory import GIB, UNKNOWN, DeviceMemory, MemoryNeed
from .lane_turns import Entry, LaneTurns

#: Simulated seconds from a dispatch to the first step, and from the last step to the report.
OVERHEAD = 0.004
#: The standard deviation of the logarithm of a step's time.
NOISE = 0.03
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

    def steps(self, dispatch: Dispatch, spec: StudySpec) -> int:
        """How many steps an epoch has."""

    def slowdown(self, at_work: int) -> float:
        """The factor by which an epoch takes longer when ``at_work`` trials share its device."""


@dataclass
class SimulatedTransport:
    """Devices that are always there, and reports that arrive at their simulated time."""

    clock: SimulatedClock
    devices: Sequence[Device]
    work: SimulatedWork
    #: Seconds from a dispatch to the first step, and from the last step to the report.
    overhead: float = OVERHEAD
    #: What the trial of a segment needs of memory.
    needs: Callable[[Segment], MemoryNeed] = lambda _: UNKNOWN
    #: What an epoch takes of each of so many trials of a study together, over that alone.
    company: Callable[[str, int], float] = lambda _study, _together: 1.0
    #: Reports to come.
    _heap: list[Entry] = field(default_factory=list)
    #: The fence of the open segment of each trial.
    _open: dict[str, int] = field(default_factory=dict)
    #: The width at which each trial was trained last.
    _widths: dict[str, int] = field(default_factory=dict)
    #: The device of each open segment that may share it, by fence.
    _device_of: dict[int, str] = field(default_factory=dict)
    #: When the present epoch of each such segment began, by fence.
    _since: dict[int, float] = field(default_factory=dict)
    #: When each width of an open window has been measured, by fence.
    _ends: dict[int, list[float]] = field(default_factory=dict)
    #: Breaks ties in the heap.
    _count: Iterator[int] = field(default_factory=count)

    def __post_init__(self) -> None:
        self._memory = DeviceMemory(self.devices)
        #: Who takes turns with whom, where lanes have several seats.
        self._turns = LaneTurns(self.company)

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
            elif fence in self._turns:
                together = self._turns.together(fence)
                seconds = self._turns.seconds(fence, at)
                if together > 1:
                    body |= {"together": together, "alone": body["seconds"]}
                body["seconds"] = seconds
            if body["closes"]:
                self._end(body["trial"])
            return [Message(str(number), "reports", body)]
        self.clock.advance_to(end)
        return []

    def carry_out(self, effects: Effects) -> None:
        """Schedule the reports of dispatched segments, and forget those of revoked ones."""
        for revoke in effects.revokes:
            if self._open.get(revoke.trial) == revoke.fence:
                self._end(revoke.trial)
        for cut in effects.cuts:
            self._cut(cut)
        for dispatch, spec in effects.dispatches:
            self._dispatch(dispatch, spec)

    def drop(self, message: Message, why: Forged) -> None:
        """Raise, because a forged message can only be a bug of the simulator."""
        raise why

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
        chain = links_of(spec, dispatch.number, dict(dispatch.params)) if has_prefixes(spec) else ()
        for epoch in range(segment.first, segment.last + 1):
            seconds, value = self.work.epoch(dispatch, spec, epoch)
            seconds *= slowdown
            at += seconds
            link = link_at(chain, epoch)
            body = {
                "kind": "epoch",
                "trial": segment.trial,
                "fence": segment.fence,
                "cause": dispatch.id,
                "epoch": epoch,
                "metrics": {spec.metric: value},
                "state_hash": f"simulated {link.key if link else dispatch.number}@{epoch}",
                "signature": "simulated",
                "seconds": seconds,
                "memory": peak,
                "claimed": at - self.clock.now() - self.overhead,
                "closes": epoch == segment.last,
            }
            heapq.heappush(self._heap, (at, next(self._count), segment.fence, body))
        if segment.fence in self._turns:
            self._turns.weigh(self._heap, self.clock.now(), segment.fence, dict(dispatch.weights))

    def _take_seat(self, study: str, segment: Segment, begins: float) -> int:
        """Take a seat in a lane; returns how many lanes of its device are then at work."""
        [member] = segment.members
        before = len(self._turns.lanes_at_work(member.device))
        lane = member.device, self._devices[member.device].lane(member.slot)
        self._turns.enter(segment.fence, segment.trial, study, lane, begins)
        after = len(self._turns.lanes_at_work(member.device))
        self._rescale(member.device, before, after)
        return after

    def _run_out_of_memory(self, dispatch: Dispatch, device: str, peak: int) -> None:
        """Schedule the report of an attempt that found too little memory on ``device``."""
        segment = dispatch.segment
        left = self._memory.free(device)
        body = {
            "kind": "failed",
            "trial": segment.trial,
            "fence": segment.fence,
            "cause": dispatch.id,
            "failure": "memory",
            "message": f"{peak / GIB:.2f} GiB are needed on {device}, {left / GIB:.2f} are free",
            "traceback": "",
            "closes": True,
        }
        heapq.heappush(self._heap, (self.clock.now(), next(self._count), segment.fence, body))

    def _measure(self, dispatch: Dispatch, spec: StudySpec, at: float) -> None:
        """Schedule the report of a width window."""
        segment, chance = dispatch.segment, Random(dispatch.segment.fence)  # noqa: S311 - no secret
        ends: list[float] = []
        window = WidthWindow(segment.widths, math.inf)
        per_epoch, meeting, met = self.work.steps(dispatch, spec), 0.0, False
        for width in window.remaining() if dispatch.probe_epochs * per_epoch >= MIN_STEPS else ():
            if width > 1 and not met:
                left = window.meeting_seconds()
                meeting = min(left, self.work.resize(dispatch, spec))
                met = meeting < left
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
                window.limit = dispatch.probe_epochs * per_epoch * seconds
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
            "closes": True,
        }
        heapq.heappush(self._heap, (at + window.spent, next(self._count), segment.fence, body))

    @cached_property
    def _devices(self) -> dict[str, Device]:
        return {device.name: device for device in self.devices}

    def _at_work(self, device: str) -> int:
        return sum(used == device for used in self._device_of.values())

    def _end(self, trial: str) -> None:
        fence = self._open.pop(trial)
        self._memory.release(fence)
        self._ends.pop(fence, None)
        device = self._device_of.pop(fence, None)
        if device is not None:
            left = self._at_work(device)
            self._rescale(device, left + 1, left)
        elif fence in self._turns:
            device = self._turns.device(fence)
            before = len(self._turns.lanes_at_work(device))
            self._turns.leave(self._heap, self.clock.now(), fence)
            self._rescale(device, before, len(self._turns.lanes_at_work(device)))

    def _rescale(self, device: str, before: int, after: int) -> None:
        """Reschedule what runs on ``device``, now shared by ``after`` trials, not ``before``."""
        factor = self.work.slowdown(after) / self.work.slowdown(before) if before and after else 1.0
        if factor == 1.0:
            return
        now = self.clock.now()
        fences = {fence for fence, used in self._device_of.items() if used == device}
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


def _tell_footprints(runner: Runner, needs: Callable[[Segment], MemoryNeed], now: float) -> None:
    """Tell the engine what memory trials need, as trainers would that have measured them.

    Without it each would count with its seat's part of the lane.
    """
    state = runner.engine.state
    reporter = next((each for each in state.attempts.values() if not each.segment.widths), None)
    if reporter is None:
        return
    names = (*state.ready, *(each.segment.trial for each in state.attempts.values()))
    unknown = [name for name in names if state.trials[name].measured is None]
    events = []
    for name in unknown:
        need = needs(Segment(name, 1, 1, 0, ()))
        footprint = Footprint(need.persistent, need.ephemeral, need.peak())
        events.append(
            FootprintReported(
                at=now,
                trial=reporter.segment.trial,
                fence=reporter.segment.fence,
                of=name,
                footprint=footprint,
                measured=True,
            )
        )
    if events:
        runner.start(*events)


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
    cross_study: bool | None = None,
    longest: float = 1e9,
    costs: CostTable | None = None,
    sharing: SharingTable | None = None,
    strategies: Callable[[StudySpec], Strategy] = make_strategy,
    arrivals: Mapping[str, float] | None = None,
    enqueued: Mapping[str, Sequence[Params]] | None = None,
    overhead: float = OVERHEAD,
    needs: Callable[[Segment], MemoryNeed] = lambda _: UNKNOWN,
    company: Callable[[str, int], float] = lambda _study, _together: 1.0,
    tell: Callable[[float, int], None] = lambda now, epochs: None,
) -> Simulated:
    """Run ``studies`` on ``devices`` under simulated time.

    ``cross_study`` is whether ``policy`` orders the trials of all studies; by default it is looked
    up among our own policies. ``costs`` and ``sharing`` are what the engine knows from the start.
    ``strategies`` makes the strategy of each study. ``arrivals`` are the times of submission by
    study id, 0 by default;
    ``enqueued`` are the configurations that each study tries first. ``needs`` is what memory the
    trial of a segment needs, nothing by default. ``company`` is what an epoch takes of each of so
    many trials of a study that are trained together in a lane, over what it takes alone. ``tell``
    is called repeatedly with the simulated time and the number of epochs trained. Raises
    BackendError if the studies are not over after ``longest`` simulated seconds.
    """
    clock = SimulatedClock()
    ledger = MemoryLedger()
    known = EngineState(costs=costs or CostTable(), sharing=sharing or SharingTable())
    engine = Engine(known, strategies)
    transport = SimulatedTransport(clock, devices, work, overhead, needs, company)
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
        runner.snapshot()  # what the engine knows from the start comes from no event
        across = policy in CROSS_STUDY if cross_study is None else cross_study
        stands = (policy, across) == (engine.state.policy, engine.state.cross_study)
        chosen = PolicyChosen(at=0.0, policy=policy, cross_study=across)
        runner.start(*(() if stands else (chosen,)))
        runner.turn(0.0)  # the devices join
        at = {spec.id: 0.0 for spec in studies} | dict(arrivals or {})
        first = {spec.id: tuple((enqueued or {}).get(spec.id, ())) for spec in studies}
        waiting = sorted(studies, key=lambda spec: at[spec.id])
        lanes = any(device.seats > 1 and device.memory is not None for device in devices)
        while waiting or runner.engine.state.studies:
            now = clock.now()
            due = [spec for spec in waiting if at[spec.id] - now < INSTANT]
            if due:
                runner.start(
                    *(StudySubmitted(at=now, study=spec, enqueued=first[spec.id]) for spec in due)
                )
                del waiting[: len(due)]
            if lanes:
                runner.turn(0.0)  # samplers answer
                _tell_footprints(runner, needs, clock.now())
            runner.turn(min(SURVEY_EVERY, at[waiting[0].id] - now) if waiting else SURVEY_EVERY)
            tell(clock.now(), len(ledger.epochs))
            if clock.now() > longest:
                raise BackendError(f"not over after {longest:g} simulated seconds")
    trace = tuple(event for _, event in ledger.events)
    return Simulated(trace, tuple(ledger.epochs.values()), clock.now(), runner.engine)
