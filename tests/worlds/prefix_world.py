"""Studies whose trials have epochs in common, in a hand-cranked world around the engine."""

from __future__ import annotations

from itertools import product

from penstock.scheduler.model.events import Proposed
from penstock.scheduler.model.study import StrategySpec
from worlds.drive_world import World, check_invariants, spec

FULL = StrategySpec("full", max_epochs=6)
#: No trial of a small study with this seed is one that trains its epochs as a check.
UNCHECKED = 5


class Grid(World):
    """A world whose sampler proposes these configurations, in their order."""

    def __init__(self, configs, **kwargs):
        super().__init__(**kwargs)
        self.configs = [tuple(config.items()) for config in configs]

    def propose(self, ask, n=None):
        taken, self.configs = self.configs[: ask.n], self.configs[ask.n :]
        fields = {"study": ask.study, "index": ask.index, "exhausted": len(taken) < ask.n}
        self.send(Proposed(at=self.at, cause=ask.id, trials=tuple(taken), **fields))

    def run(self):
        while self.open:
            self.run_segment()
            check_invariants(self.engine)

    def trial(self, number):
        return self.engine.state.trials[f"s-1-{number:04d}"]

    @property
    def trained(self):
        """Return the number of trained epochs."""
        return sum(self.epochs_by_trial().values())


def grid(*starts, values=(1, 2, 3)):
    """All configurations of a schedule with pieces at 0 and at these epochs."""
    names = ["lr", *(f"lr@{start}" for start in starts)]
    return [dict(zip(names, each, strict=True)) for each in product(values, repeat=len(names))]


def shared(n_trials, strategy=FULL, **fields):
    fields = {"seed": UNCHECKED, "seeding": "shared", "max_segment": 2} | fields
    return spec(strategy, n_trials=n_trials, **fields)
