"""A world whose study samples with its objectives, and whose rows are kept as in a ledger."""

from __future__ import annotations

from dataclasses import replace

from penstock.scheduler.model.events import (
    StudyExtended,
    StudyReopened,
    TrialAdded,
    TrialReturned,
    TrialWritten,
)
from penstock.scheduler.model.finished import FinishedStudy, PastTrial
from penstock.scheduler.model.study import Code, StrategySpec
from worlds.drive_world import World, spec

TOOLS = Code("pickle:tools", "", "d")


def local(n_trials=3, **fields):
    defaults = {"contract": "objective", "sampler": "optuna", "tools": TOOLS, "space": None}
    return spec(StrategySpec(), n_trials=n_trials, **defaults | fields)


class Kept(World):
    """Remembers trials and studies as the ledger does."""

    def __init__(self):
        super().__init__()
        self.trials, self.records = {}, {}

    def send(self, event):
        decisions = super().send(event)
        changes = self.engine.take_changes()
        # As rows: what the engine changes later does not change them.
        self.trials |= {name: replace(trial) for name, trial in changes.trials.items()}
        self.records |= changes.studies
        return decisions

    def study(self):
        return self.engine.state.studies["s-1"]

    def add(self, state, number=None, **fields):
        if number is None:
            number = len(self.study().trials)
        name = f"s-1-{number:04}"
        self.send(TrialAdded(at=self.at, trial=name, state=state, **fields))
        return name

    def write(self, trial, **fields):
        self.send(TrialWritten(at=self.at, trial=trial, **fields))

    def return_(self, value=1.0):
        """The oldest objective at work returns."""
        segment = self.open[min(self.open)].segment
        self.at += 1.0
        self.send(TrialReturned(at=self.at, trial=segment.trial, fence=segment.fence, value=value))
        return segment.trial

    def past(self):
        trials = tuple(PastTrial.of(self.trials[name]) for name in sorted(self.trials))
        return FinishedStudy(0.0, trials, self.records["s-1"].spent)

    def reopen(self, **fields):
        """As the runner does; ``status="running"`` as in ledgers of format 11."""
        last = self.records["s-1"]
        was = {name: getattr(last, name) for name in ("status", "finished_at", "message")}
        self.send(StudyReopened(at=self.at, study=last.spec, past=self.past(), **was | fields))

    def extend(self, n_trials, *, over, **changes):
        past = self.past() if over else None
        self.send(StudyExtended(at=self.at, study=local(n_trials, **changes), past=past))

    def states(self):
        return [self.trials[name].state.value for name in sorted(self.trials)]
