"""A world of studies of one trial each, on devices with lanes."""

from __future__ import annotations

from penstock.base.footprint import Footprint
from penstock.profiling.devices.device import Device
from penstock.scheduler.model.decisions import Dispatch
from penstock.scheduler.model.events import DeviceJoined, PolicyChosen, Tick
from penstock.scheduler.model.study import StrategySpec
from worlds.drive_world import World, check_invariants, spec

GIB = 2**30


class Laned(World):
    """Studies of one trial each, on devices with lanes."""

    def __init__(self, *, lanes=1, seats=4, devices=1, memory=None, policy="fair"):
        super().__init__()
        if policy != "fifo":
            across = policy in ("srtf", "las", "pack")
            self.send(PolicyChosen(at=0.0, policy=policy, cross_study=across))
        for i in range(devices):
            size = None if memory is None else round(memory * GIB)
            made = Device(f"d{i}", "a", "cuda", (i,), size, lanes * seats, seats=seats)
            self.send(DeviceJoined(at=0.0, device=made, incarnation="i1"))

    def study(self, name, epochs=5, **fields):
        plan = StrategySpec("full", max_epochs=epochs)
        one = {"n_trials": 1, "max_segment": 1, "contract": "torch", "sampler": "random"}
        self.submit(spec(plan, id=name, name=name, **{**one, **fields}))
        check_invariants(self.engine)

    @property
    def state(self):
        return self.engine.state

    @property
    def fused_groups(self):
        return self.engine.extensions.fused_groups

    def trial(self, name):
        return self.state.trials[name if name in self.state.trials else f"{name}-0000"]

    def attempt(self, name):
        return self.state.attempts[self.trial(name).fence]

    def parts(self):
        return {a.study: round(a.part, 3) for a in self.state.attempts.values()}

    def places(self):
        return {
            a.study: (a.segment.members[0].device, a.segment.members[0].slot)
            for a in self.state.attempts.values()
        }

    def last(self):
        return next(d for d in reversed(self.trace) if isinstance(d, Dispatch))

    def weights(self):
        """The weights of turns that the last dispatch told its trainer."""
        return self.last().ext["lanes"]["weights"]

    def end_epoch(self, name, seconds, **changes):
        """The trial's epoch ends now, after ``seconds`` of turns."""
        trial = self.trial(name)
        event = self.epoch(self.open[trial.fence], trial.epoch + 1, seconds=seconds, **changes)
        self.send(event)
        check_invariants(self.engine)

    def gain(self, study, ratios):
        """Add measured ratios of epochs of trials together, by the number of trials."""
        for together, ratio in ratios.items():
            self.state.costs.observe_group(study, together, ratio)
        self.at += 1.0
        self.send(Tick(at=self.at))
        check_invariants(self.engine)

    def told(self, name, persistent, ephemeral, **fields):
        """An attempt at work tells what memory a trial needs (GiB)."""
        from penstock.extensions.memory.events import FootprintReported

        dispatch = next((d for d in self.open.values() if not d.segment.widths), None)
        if dispatch is None:
            return
        peak = round((persistent + ephemeral) * GIB)
        footprint = Footprint(round(persistent * GIB), round(ephemeral * GIB), peak)
        self.send(
            FootprintReported(
                at=self.at,
                trial=dispatch.segment.trial,
                fence=dispatch.segment.fence,
                of=name if name in self.state.trials else f"{name}-0000",
                footprint=footprint,
                **{"measured": True, **fields},
            )
        )
        check_invariants(self.engine)
