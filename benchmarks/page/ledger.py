"""A study of many trials in a ledger, made by the real runner under simulated time."""

from __future__ import annotations

import json
import time
from pathlib import Path
from random import Random

from penstock.app.common.clock import SimulatedClock
from penstock.app.ledger.ledger import SqlLedger
from penstock.app.ledger.restore import restore
from penstock.app.server.optuna_bridge.samplers import SamplerHost
from penstock.app.server.runner.runner import Runner
from penstock.extensions.simulation.devices.transport import SimulatedTransport
from penstock.profiling.devices.device import Device
from penstock.scheduler.model.events import StudySubmitted
from penstock.scheduler.model.study import Code, StrategySpec, StudySpec
from penstock.scheduler.model.trial import FINAL

DEVICES = 16
LR = {"name": "FloatDistribution", "attributes": {"step": None, "low": 1e-5, "high": 1.0}}


class Curves:
    """Learning curves that rise to a level of the trial's own; an epoch takes about a second."""

    def slowdown(self, at_work):
        return 1.0

    def resize(self, dispatch, spec):
        return 0.0

    def steps(self, dispatch, spec):
        return 200

    def epoch(self, dispatch, spec, epoch):
        chance = Random(f"{dispatch.number} {epoch}")
        level = 1 - abs(dict(dispatch.params)["x"] - 0.3)
        return chance.uniform(0.8, 1.2), level * epoch / (epoch + 1) + chance.gauss(0, 0.01)


class LargeStudy:
    """``n`` trials of an ASHA study in ``home/ledger.db``, and more of them by ``go_on``."""

    id = "large-1a2b"

    def __init__(self, home: Path, n: int) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self._ledger = SqlLedger.open(f"sqlite:///{home / 'ledger.db'}")
        clock = SimulatedClock(time.time())
        devices = [Device(f"gpu.node.{k}", "node", "cpu", (k,), None) for k in range(DEVICES)]
        transport = SimulatedTransport(clock, devices, Curves())
        self._runner = Runner(restore(self._ledger), self._ledger, transport, SamplerHost(), clock)
        self._runner.start(StudySubmitted(at=clock.now(), study=spec_of(self.id, 2 * n)))
        trials = self._runner.engine.state.trials
        while len(trials) < n:
            self._runner.turn(1.0)

    def go_on(self) -> None:
        """Let one thing more happen: an epoch ends."""
        self._runner.turn(1.0)

    @property
    def trials(self) -> int:
        """The number of trials."""
        return len(self._runner.engine.state.trials)

    @property
    def over(self) -> int:
        """The number of trials that will not run again."""
        return sum(trial.state in FINAL for trial in self._runner.engine.state.trials.values())

    def close(self) -> None:
        """Close the ledger."""
        self._ledger.close()


def spec_of(name: str, n_trials: int) -> StudySpec:
    unit = {**LR["attributes"], "low": 0.0, "log": False}
    x = {**LR, "attributes": unit}
    lr = {**LR, "attributes": {**LR["attributes"], "log": True}}
    return StudySpec(
        id=name,
        name=name,
        contract="empty",
        code=Code("nowhere:nothing", "", ""),
        metric="accuracy",
        direction="maximize",
        n_trials=n_trials,
        space=(("x", json.dumps(x)), ("lr", json.dumps(lr))),
        sampler="random",
        strategy=StrategySpec("asha", max_epochs=27),
    )
