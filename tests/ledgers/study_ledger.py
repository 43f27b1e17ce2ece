"""Studies in a real ledger file, made by the real runner under simulated time."""

from __future__ import annotations

import heapq
import json
from pathlib import Path

from penstock.app.common.clock import SimulatedClock
from penstock.app.ledger.codec import encode
from penstock.app.ledger.ledger import SqlLedger
from penstock.app.ledger.reader import Reader
from penstock.app.ledger.restore import restore
from penstock.app.server.optuna_bridge.samplers import SamplerHost
from penstock.app.server.runner.commands import to_event as command_to_event
from penstock.app.server.runner.runner import Runner
from penstock.profiling.devices.device import Device
from penstock.scheduler.model.events import StudySubmitted
from penstock.scheduler.model.study import Code, StrategySpec, StudySpec
from worlds.plain_devices import PlainDevices

START = 1_770_000_000.0
TRACEBACK = 'Traceback (most recent call last):\n  File "<net>.py", line 4\nValueError: <b>no</b>'


class Curves:
    """Learning curves that favour x near 1: epoch e ends at x * e / (e + 1), after 0.1 s."""

    def slowdown(self, at_work):
        return 1.0

    def resize(self, dispatch, spec):
        return 0.0

    def steps(self, dispatch, spec):
        return 200

    def epoch(self, dispatch, spec, epoch):
        return 0.1, dict(dispatch.params)["x"] * epoch / (epoch + 1)


class SomeFail(PlainDevices):
    """Simulated devices on which the code of some trials (by number) raises at once."""

    fails: tuple[int, ...] = ()
    failure, message, traceback = "exception", "ValueError: <b>no</b>", TRACEBACK

    def _dispatch(self, dispatch, spec):
        super()._dispatch(dispatch, spec)
        if dispatch.number not in self.fails:
            return
        fence = dispatch.segment.fence
        at = min(entry[0] for entry in self._heap if entry[2] == fence)
        self._heap = [entry for entry in self._heap if entry[2] != fence]
        body = {
            "kind": "failed",
            "trial": dispatch.segment.trial,
            "fence": fence,
            "cause": dispatch.id,
            "failure": self.failure,
            "message": self.message,
            "traceback": self.traceback,
        }
        self._heap.append((at, next(self._count), fence, body))
        heapq.heapify(self._heap)


class WithSizes(SomeFail):
    """Accuracy grows with x, and so does size, but for one trial; x above 0.8 is too slow."""

    def _dispatch(self, dispatch, spec):
        super()._dispatch(dispatch, spec)
        x = dict(dispatch.params)["x"]
        size = 9.0 if dispatch.number == 2 else 4.0 * x
        for *_, body in self._heap:
            if body["trial"] == dispatch.segment.trial and body["kind"] == "epoch":
                body["metrics"] |= {"size": size, "seconds": 10 * x}


def study_spec(name: str = "digits", n_trials: int = 9, **fields) -> StudySpec:
    float_ = {"name": "FloatDistribution"}
    attributes = {"step": None, "low": 0.0, "high": 1.0, "log": False}
    x = json.dumps({**float_, "attributes": attributes})
    lr = json.dumps({**float_, "attributes": {**attributes, "low": 1e-5, "log": True}})
    choices = {"name": "CategoricalDistribution", "attributes": {"choices": ["relu", "<i>tanh"]}}
    space = (("x", x), ("lr", lr), ("activation", json.dumps(choices)))
    given = {
        "id": "digits-1a2b",
        "contract": "empty",
        "code": Code("/secret/folder/digits.py:Digits", "/secret/folder", "0" * 64),
        "metric": "accuracy",
        "direction": "maximize",
        "space": space,
        "strategy": StrategySpec("asha", max_epochs=9),
    }
    return StudySpec(name=name, n_trials=n_trials, **{**given, **fields})


def start_study(
    home: Path, *specs: StudySpec, fails=(), devices=SomeFail
) -> tuple[Runner, SqlLedger]:
    """A runner of these studies in ``home/ledger.db``, and its ledger, which is to be closed."""
    home.mkdir(parents=True, exist_ok=True)
    ledger, clock = SqlLedger.open(f"sqlite:///{home / 'ledger.db'}"), SimulatedClock(START)
    two = [Device(f"cpu.node.{n}", "node", "cpu", (n,), None) for n in range(2)]
    transport = devices(clock, two, Curves())
    transport.fails = fails
    runner = Runner(restore(ledger), ledger, transport, SamplerHost(), clock)
    runner.start(*(StudySubmitted(at=clock.now(), study=spec) for spec in specs))
    return runner, ledger


def make_study(
    home: Path, *specs: StudySpec, fails=(), turns: int | None = None, devices=SomeFail
) -> Reader:
    """Run studies (to their end, or for some turns) in ``home/ledger.db``; a reader of it."""
    runner, ledger = start_study(home, *specs, fails=fails, devices=devices)
    while runner.engine.state.studies and turns != 0:
        runner.turn(1.0)
        turns = None if turns is None else turns - 1
    ledger.close()
    return Reader(f"sqlite:///{home / 'ledger.db'}")


class Here:
    """A ledger of this machine, and the runner that writes it."""

    def __init__(self, home):
        self.url = f"sqlite:///{home / 'ledger.db'}"
        self.reader = Reader(self.url)
        self.open()

    def open(self):
        self.ledger, clock = SqlLedger.open(self.url), SimulatedClock(START + 1e6)
        self.engine = restore(self.ledger)
        devices = [Device("cpu.here.0", "here", "cpu", (0,), None)]
        transport = PlainDevices(clock, devices, Curves())
        self.runner = Runner(self.engine, self.ledger, transport, SamplerHost(), clock)

    def restart(self, *, snapshot):
        if snapshot:
            self.runner.snapshot()
        self.ledger.close()
        self.open()

    def take_in(self, archive):
        """Carry out the command of ``penstock import``, as the scheduler does."""
        from penstock.extensions.exports.archive import to_event

        body = {"kind": "import", "imported": encode(to_event(archive))[1]}
        self.runner.start(command_to_event(body, self.engine, START + 1e6, {}.__getitem__))

    def run(self, spec):
        self.runner.start(StudySubmitted(at=START + 1e6, study=spec))
        while self.engine.state.studies:
            self.runner.turn(1.0)
