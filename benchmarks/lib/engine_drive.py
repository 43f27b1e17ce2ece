"""Drives the engine alone: trials report as soon as they are dispatched; each event is timed."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from penstock.app.extensions import PLUGS
from penstock.profiling.devices.device import Device
from penstock.scheduler.engine.engine import Engine
from penstock.scheduler.model.decisions import Ask, Dispatch
from penstock.scheduler.model.events import (
    DeviceJoined,
    EpochReported,
    PolicyChosen,
    Proposed,
    StudySubmitted,
)
from penstock.scheduler.model.study import Params, StudySpec


@dataclass
class Drive:
    """An engine with devices, one study, and what its sampler will propose.

    ``state_hash`` gives the hash of a dispatch's trial after an epoch. ``spans`` are the seconds of
    each epoch's event.
    """

    proposals: Iterator[Params]
    state_hash: Callable[[Dispatch, int], str]
    engine: Engine = field(default_factory=lambda: Engine(plugs=PLUGS))
    queue: deque[Dispatch] = field(default_factory=deque)
    spans: list[float] = field(default_factory=list)
    at: float = 0.0

    def begin(self, spec: StudySpec, devices: int) -> None:
        self._handle(PolicyChosen(at=self.at, policy="fifo", fill_at_end=True))  # as the scheduler
        self._handle(StudySubmitted(at=self.at, study=spec))
        for number in range(devices):
            device = Device(f"cpu.bench.{number}", "bench", "cpu", (number,), None)
            self._handle(DeviceJoined(at=self.at, device=device, incarnation="1"))

    def segment(self) -> None:
        """The segment that was dispatched first reports its epochs."""
        dispatch = self.queue.popleft()
        segment = dispatch.segment
        for epoch in range(segment.first, segment.last + 1):
            self.at += 0.01
            report = EpochReported(
                at=self.at,
                cause=dispatch.id,
                trial=segment.trial,
                fence=segment.fence,
                epoch=epoch,
                metrics=(("v", 1.0),),
                state_hash=self.state_hash(dispatch, epoch),
                signature="",
                seconds=1.0,
                closes=epoch == segment.last,
            )
            self.spans.append(self._handle(report))
            self.engine.take_changes()  # as the runner does

    def _handle(self, event: Any) -> float:
        """Seconds of the event, those of proposals that it asks for not counted."""
        started = time.perf_counter()
        decisions = self.engine.handle(event)
        seconds = time.perf_counter() - started
        for decision in decisions:
            if isinstance(decision, Dispatch):
                self.queue.append(decision)
            elif isinstance(decision, Ask):
                found = tuple(islice(self.proposals, decision.n))
                exhausted = len(found) < decision.n
                ids = {"study": decision.study, "index": decision.index}
                self._handle(Proposed(at=self.at, trials=found, exhausted=exhausted, **ids))
        return seconds
