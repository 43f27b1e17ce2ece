"""The same engine and runner under simulated time: a transport that computes when epochs end.

Nothing runs and nobody sleeps: dispatched segments become reports on a heap, ordered by simulated
time and then by a counter, so ties break in the order of dispatch and one study with one seed has
one trace. What an epoch costs and yields is the caller's ``Work``.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Protocol

from ..profiling.cost import CostTable
from ..profiling.devices import Device
from ..profiling.errors import BackendError
from ..scheduler.decisions import Cut, Dispatch, Release, Revoke
from ..scheduler.engine import Engine
from ..scheduler.events import Event, PolicyChosen, StudySubmitted
from ..scheduler.state import EngineState
from ..scheduler.strategy import Strategy, make_strategy
from ..scheduler.study import Params, StudySpec
from .clock import SimulatedClock
from .ledger import MemoryLedger
from .runner import Runner
from .samplers import SamplerHost
from .transport import AttemptSeen, Message, OpenAttempt, Seen, Survey

#: Simulated seconds from a dispatch to the first step, and from the last step to the report.
OVERHEAD = 0.004
#: Simulated seconds between two looks at the devices.
SURVEY_EVERY = 60.0


class Work(Protocol):
    """What training would do."""

    def epoch(self, dispatch: Dispatch, spec: StudySpec, epoch: int) -> tuple[float, float]:
        """Seconds that ``epoch`` takes, and the study's metric after it."""

    def resize(self, dispatch: Dispatch, spec: StudySpec) -> float:
        """Seconds that it costs to go on with other devices than before."""


@dataclass(slots=True)
class SimulatedTransport:
    """Devices that are always there, and reports that arrive when simulated time has come."""

    clock: SimulatedClock
    devices: Sequence[Device]
    work: Work
    overhead: float = OVERHEAD
    _heap: list[tuple[float, int, int, dict[str, Any]]] = field(default_factory=list)
    _open: dict[str, int] = field(default_factory=dict)
    _widths: dict[str, int] = field(default_factory=dict)
    _count: Iterator[int] = field(default_factory=count)

    def open(self) -> None:
        """Nothing to make."""

    def receive(self, timeout: float) -> list[Message]:
        """The next report, with the clock moved to it; or none, with the clock moved on."""
        end = self.clock.now() + timeout
        while self._heap and self._heap[0][0] <= end:
            at, number, fence, body = heapq.heappop(self._heap)
            if self._open.get(body["trial"]) != fence:
                continue
            self.clock.advance_to(max(at, self.clock.now()))
            if body["closes"]:
                del self._open[body["trial"]]
            return [Message(str(number), "reports", body)]
        self.clock.advance_to(end)
        return []

    def carry_out(
        self,
        *,
        dispatches: Sequence[tuple[Dispatch, StudySpec]] = (),
        cuts: Sequence[Cut] = (),
        revokes: Sequence[Revoke] = (),
        releases: Sequence[Release] = (),
        answers: Sequence[tuple[str, str]] = (),
        acks: Sequence[Message] = (),
    ) -> None:
        """Schedule the reports of what was dispatched; forget those of what was revoked."""
        for revoke in revokes:
            if self._open.get(revoke.trial) == revoke.fence:
                del self._open[revoke.trial]
        for cut in cuts:
            self._cut(cut)
        for dispatch, spec in dispatches:
            self._dispatch(dispatch, spec)

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
                "state_hash": f"simulated {dispatch.number}@{epoch}",
                "signature": "simulated",
                "seconds": seconds,
                "claimed": at - self.clock.now() - self.overhead,
                "closes": epoch == segment.last,
            }
            heapq.heappush(self._heap, (at, next(self._count), segment.fence, body))

    def _cut(self, cut: Cut) -> None:
        mine = [entry for entry in self._heap if entry[2] == cut.fence]
        if mine:
            min(mine)[3]["closes"] = True


@dataclass(frozen=True, slots=True)
class Simulated:
    """What a simulated run gave: its events in order, and when the last study ended (seconds)."""

    trace: tuple[Event, ...]
    makespan: float
    engine: Engine


def simulate(
    studies: Sequence[StudySpec],
    devices: Sequence[Device],
    work: Work,
    *,
    policy: str = "fifo",
    longest: float = 1e9,
    costs: CostTable | None = None,
    strategies: Callable[[StudySpec], Strategy] = make_strategy,
    enqueued: Sequence[Params] = (),
) -> Simulated:
    """Run ``studies``, all submitted at time 0, on ``devices`` under simulated time.

    ``costs``: what is known of them before; ``strategies`` makes each study's; ``enqueued``
    configurations are the first ones of each. Raises BackendError
    when they are not over after ``longest`` simulated seconds.
    """
    clock = SimulatedClock()
    ledger = MemoryLedger()
    engine = Engine(EngineState(costs=costs) if costs else None, strategies)
    transport = SimulatedTransport(clock, devices, work)
    runner = Runner(engine, ledger, transport, SamplerHost(), clock, survey_every=SURVEY_EVERY)
    chosen = [PolicyChosen(at=0.0, policy=policy)] if policy != engine.state.policy else []
    runner.start(*chosen)
    runner.turn(0.0)  # the devices join
    runner.start(
        *(StudySubmitted(at=0.0, study=spec, enqueued=tuple(enqueued)) for spec in studies)
    )
    while engine.state.studies:
        runner.turn(SURVEY_EVERY)
        if clock.now() > longest:
            raise BackendError(f"not over after {longest:g} simulated seconds")
    return Simulated(tuple(event for _, event in ledger.events), clock.now(), engine)
