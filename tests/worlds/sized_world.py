"""A world whose trials need different amounts of memory, and whose devices are limited."""

from __future__ import annotations

from penstock.base.footprint import Footprint
from penstock.extensions.memory.events import FootprintReported
from penstock.extensions.memory.fit import RESERVE
from penstock.extensions.memory.resident import LOADED, SLOPE
from penstock.profiling.devices.device import Device
from penstock.scheduler.model.events import (
    DeviceJoined,
    DeviceLeft,
    PolicyChosen,
)
from penstock.scheduler.model.study import StrategySpec
from penstock.scheduler.model.trial import TrialState
from worlds.drive_world import World, check_invariants, spec

GIB = 2**30
#: Bytes that a process has before a trial.
BASE = GIB // 4


def tensors(process: float) -> Footprint:
    """Return tensors expected to make a process of ``process`` GiB, without a margin."""
    peak = round((process * GIB - BASE - LOADED) / SLOPE)
    return Footprint(peak // 4, peak - peak // 4, peak)


class Sized:
    """A world of one study of TorchTrainables whose trials have the sizes ``sizes`` (GiB)."""

    def __init__(self, *sizes, memory=8.0, slots=4, devices=1, policy="pack", **fields):
        self.sizes = sizes
        self.world = World()
        if policy != "fifo":
            chosen = PolicyChosen(at=0.0, policy=policy, cross_study=policy == "pack")
            self.world.send(chosen)
        for i in range(devices):
            usable = round(memory * GIB / (1.0 - RESERVE))
            device = Device(f"d{i}", "a", "cpu", (i,), usable, slots)
            self.world.send(DeviceJoined(at=0.0, device=device, incarnation="i1"))
        plan = StrategySpec("full", max_epochs=40)
        self.world.submit(
            spec(
                plan,
                **{
                    "n_trials": len(sizes),
                    "contract": "torch",
                    "max_segment": 1,
                    "sampler": "random",
                }
                | fields,
            )
        )

    @property
    def state(self):
        return self.world.engine.state

    def name(self, number):
        return f"s-1-{number:04d}"

    def estimate(self, *numbers, measured=False):
        """An attempt at work says what these trials need."""
        dispatch = next(iter(self.world.open.values()))
        for number in numbers:
            self.world.send(
                FootprintReported(
                    at=self.world.at,
                    trial=dispatch.segment.trial,
                    fence=dispatch.segment.fence,
                    of=self.name(number),
                    footprint=tensors(self.sizes[number]),
                    measured=measured,
                    base=BASE,
                )
            )
            check_invariants(self.world.engine)

    def epoch(self, number):
        """The next epoch of a trial at work."""
        trial = self.state.trials[self.name(number)]
        dispatch = self.world.open[trial.fence]
        self.world.at += 1.0
        memory = round(self.sizes[number] * GIB)
        event = self.world.epoch(dispatch, trial.epoch + 1, seconds=1.0, memory=memory)
        self.world.send(event)
        check_invariants(self.world.engine)

    def is_waiting(self, number):
        trial = self.state.trials.get(self.name(number))
        return trial is not None and trial.state is TrialState.WAITING

    def on(self, device="d0"):
        return sorted(int(each.segment.trial[-4:]) for each in self.state.attempts_on(device))

    def join(self, name, memory):
        """Add a device with ``memory`` GiB in addition to its reserve."""
        usable = round(memory * GIB / (1.0 - RESERVE))
        device = Device(name, "a", "cpu", (0,), usable, 2)
        self.world.send(DeviceJoined(at=self.world.at, device=device, incarnation="i1"))

    def leave(self, name):
        self.world.send(DeviceLeft(at=self.world.at, device=name, reason="gone"))
