"""What looking for common prefixes costs the engine: microseconds an event, nothing else at work.

An epoch of a study where nothing merges, each trial with a learning rate of its own, under
``seeding="shared"`` and under ``"trial"``; and of grids where much does.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice, product
from random import Random
from statistics import fmean
from typing import Any

from penstock.profiling.devices.device import Device
from penstock.scheduler.engine.engine import Engine
from penstock.scheduler.model.decisions import Ask, Dispatch
from penstock.scheduler.model.events import DeviceJoined, EpochReported, Proposed, StudySubmitted
from penstock.scheduler.model.study import Code, Params, StrategySpec, StudySpec
from penstock.scheduler.prefixes.chain import chain_of, link_at

#: Trials of the study where nothing merges, and their epochs.
TRIALS, EPOCHS, DEVICES = 200, 30, 8
#: Pieces of three values, of ten epochs each: 27 and 243 trials.
PIECES = (3, 5)


@dataclass
class _Drive:
    """An engine with devices, whose trials report as soon as they are dispatched."""

    proposals: Iterator[Params]
    engine: Engine = field(default_factory=Engine)
    queue: deque[Dispatch] = field(default_factory=deque)
    spans: list[float] = field(default_factory=list)
    at: float = 0.0

    def handle(self, event: Any) -> float:
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
                self.handle(Proposed(at=self.at, trials=found, exhausted=exhausted, **ids))
        return seconds

    def run(self, spec: StudySpec) -> None:
        """Run the study to its end."""
        self.handle(StudySubmitted(at=0.0, study=spec))
        for number in range(DEVICES):
            device = Device(f"cpu.bench.{number}", "bench", "cpu", (number,), None)
            self.handle(DeviceJoined(at=0.0, device=device, incarnation="1"))
        while self.queue:
            dispatch = self.queue.popleft()
            segment = dispatch.segment
            trial = self.engine.state.trials[segment.trial]
            chain = chain_of(spec, trial)
            for epoch in range(segment.first, segment.last + 1):
                self.at += 0.01
                link = link_at(chain, epoch)
                report = EpochReported(
                    at=self.at,
                    cause=dispatch.id,
                    trial=segment.trial,
                    fence=segment.fence,
                    epoch=epoch,
                    metrics=(("v", 1.0),),
                    state_hash=f"{'' if link is None else link.key}@{epoch}",
                    signature="",
                    seconds=1.0,
                    closes=epoch == segment.last,
                )
                self.spans.append(self.handle(report))
                self.engine.take_changes()  # as the runner does


def _spec(trials: int, epochs: int, seeding: str) -> StudySpec:
    return StudySpec(
        id="s",
        name="s",
        contract="empty",
        code=Code("nowhere:nothing", "", ""),
        metric="v",
        direction="minimize",
        n_trials=trials,
        space=(),
        sampler="random",
        strategy=StrategySpec("full", max_epochs=epochs),
        seeding=seeding,
    )


def nothing_merges(seeding: str) -> float:
    """Mean microseconds of an epoch's event, trials' starts included."""
    rng = Random(0)
    drive = _Drive((("lr", rng.random()),) for _ in range(TRIALS))
    drive.run(_spec(TRIALS, EPOCHS, seeding))
    assert len(drive.spans) == TRIALS * EPOCHS
    return fmean(drive.spans) * 1e6


def grid(pieces: int, seeding: str) -> dict[str, float]:
    """The same of a grid, and how many epochs were trained; the engine's milliseconds in all."""
    names = ["lr", *(f"lr@{10 * piece}" for piece in range(1, pieces))]
    every = product((1, 2, 3), repeat=pieces)
    drive = _Drive(tuple(zip(names, each, strict=True)) for each in every)
    drive.run(_spec(3**pieces, 10 * pieces, seeding))
    spans = drive.spans
    total = sum(spans)
    return {
        "event_us": total / len(spans) * 1e6,
        "longest_us": max(spans) * 1e6,
        "epochs": len(spans),
        "all_ms": total * 1e3,
    }
