"""A world in which trials that share a device slow each other down, and have memory."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field

from penstock.profiling.devices.device import Device
from penstock.scheduler.model.decisions import Dispatch
from penstock.scheduler.model.events import DeviceJoined
from penstock.scheduler.model.study import StrategySpec, StudySpec
from penstock.scheduler.outlook.outlook import outlook
from worlds.drive_world import World, check_invariants, spec


def study(n_trials: int = 6, epochs: int = 40, **fields) -> StudySpec:
    """A study whose segments have one epoch."""
    return spec(StrategySpec("full", max_epochs=epochs), n_trials=n_trials, max_segment=1, **fields)


@dataclass
class Timed:
    """A world whose epochs take the seconds of ``stretch``, by the number of trials at work.

    ``memory`` are the bytes of every process, or a function of its trial's number.
    """

    stretch: dict[int, float]
    memory: int | Callable[[int], int] = 0
    world: World = field(default_factory=World)
    most: dict[str, int] = field(default_factory=dict)

    def join(self, name="d0", slots=2, memory=None):
        device = Device(name, "a", "cpu", (0,), memory, slots)
        self.world.send(DeviceJoined(at=self.world.at, device=device, incarnation="i1"))

    def at_work(self, name="d0"):
        return len(self.world.engine.state.attempts_on(name))

    def run(self, epochs=1000):
        """Run up to ``epochs`` epochs, each timed by the trials at work when it began."""
        heap, known = [], set()
        for _ in range(epochs):
            for fence, dispatch in self.world.open.items():
                if fence not in known:
                    known.add(fence)
                    heapq.heappush(heap, (self._end(dispatch), fence))
            while heap and heap[0][1] not in self.world.open:
                heapq.heappop(heap)
            if not heap:
                return
            self.world.at, fence = heapq.heappop(heap)
            dispatch = self.world.open[fence]
            trial = self.world.engine.state.trials[dispatch.segment.trial]
            began = self.world.engine.state.attempts[fence].began
            seconds = self.world.at - began
            event = self.world.epoch(
                dispatch,
                trial.epoch + 1,
                closes=True,
                seconds=seconds,
                memory=self.memory
                if isinstance(self.memory, int)
                else self.memory(dispatch.number),
            )
            self.world.send(event)
            check_invariants(self.world.engine)
            for name in self.world.engine.state.devices:
                self.most[name] = max(self.most.get(name, 0), self.at_work(name))

    def _memory_of(self, number: int) -> int:
        return self.memory if isinstance(self.memory, int) else self.memory(number)

    def _end(self, dispatch: Dispatch) -> float:
        k = self.at_work(dispatch.segment.members[0].device)
        return self.world.at + self.stretch[k] * (1.0 + 0.001 * (dispatch.segment.first % 3))

    def why(self, name="d0"):
        return {row["device"]: row["why"] for row in outlook(self.world.engine, 0.0)["shared"]}[
            name
        ]
