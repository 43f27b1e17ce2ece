"""The sides of ``benchmarks.anytime``: our engine under simulated time, and peers in processes.

Ours is the engine, its strategies, samplers and runner as they are, with a deadline. Its clock
moves with the time that these really take, too, and stands still while the table is read. A peer is
asked in its own process and environment (``peers/anytime_side.py``).
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import penstock
from penstock.app.common.clock import SimulatedClock
from penstock.extensions.simulation.simulator import simulate
from penstock.profiling.devices.device import Device
from penstock.scheduler.model.decisions import Dispatch
from penstock.scheduler.model.events import EpochReported
from penstock.scheduler.model.study import ENDLESS, StudySpec

from ..lib.surrogate import EPOCHS, METRIC, SPACE, Surrogate, spec_of
from .figures import Ran, path_of

PEERS = Path(__file__).parents[1] / "peers"
#: Our sides, by the strategy's name in ``penstock``: the one that counts first. The sampler is TPE.
OURS = {"freeze_thaw": "FreezeThaw", "asha": "ASHA", "hyperband": "Hyperband"}
#: The peers, by the environment that has them; None: this one.
ENVIRONMENTS: dict[str, str | None] = {
    "optuna_hyperband": None,
    "optuna_asha": None,
    "syne_tune_asha": ".venv-peers",
    "syne_tune_bohb": ".venv-peers",
    # The last version that has it, with an older numpy.
    "syne_tune_dyhpo": ".venv-dyhpo",
}
SIDES = (*OURS, *ENVIRONMENTS)


class Side(Protocol):
    """A tuner that runs studies on tables."""

    def run(self, table: Surrogate, devices: int, budget: float, seed: int) -> Ran:
        """Run one study for ``budget`` simulated seconds."""

    def close(self) -> None:
        """End what was started."""


def missing(side: str) -> str:
    """Say what is missing to run ``side``, and how to get it; empty if nothing is."""
    if side in OURS:
        return "" if hasattr(penstock, OURS[side]) else f"penstock has no {OURS[side]}"
    folder = ENVIRONMENTS[side]
    if folder is None:
        return "" if find_spec("optuna") else "optuna is not installed: pip install optuna"
    return "" if _python(folder).exists() else f"not installed: make {folder}/installed"


def made(side: str) -> Side:
    """Return ``side``. What it imports at its first study is in the time of that study."""
    return Ours(OURS[side]) if side in OURS else Peer(side, ENVIRONMENTS[side])


def _python(folder: str | None) -> Path:
    return PEERS.parent.parent / folder / "bin" / "python" if folder else Path(sys.executable)


class CountedClock(SimulatedClock):
    """Simulated time in which the real time of decisions passes, too."""

    def __init__(self) -> None:
        super().__init__()
        self.decided = 0.0
        self._since = time.perf_counter()

    def now(self) -> float:
        """Return the seconds so far, with what has really passed since the last look."""
        moment = time.perf_counter()
        self.decided += moment - self._since
        self._now += moment - self._since
        self._since = moment
        return self._now

    def advance_to(self, moment: float) -> None:
        """Move to ``moment`` (seconds), if that is not past already."""
        self._now = max(self._now, moment)

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Let the time in it not count."""
        self.now()
        yield
        self._since = time.perf_counter()


@dataclass
class _Counted:
    """A table whose reading takes no time."""

    table: Surrogate
    clock: CountedClock

    def epoch(self, dispatch: Dispatch, spec: StudySpec, epoch: int) -> tuple[float, float]:
        with self.clock.stopped():
            return self.table.epoch(dispatch, spec, epoch)

    def resize(self, dispatch: Dispatch, spec: StudySpec) -> float:
        return self.table.resize(dispatch, spec)

    def steps(self, dispatch: Dispatch, spec: StudySpec) -> int:
        return self.table.steps(dispatch, spec)

    def slowdown(self, at_work: int) -> float:
        return self.table.slowdown(at_work)


@dataclass(frozen=True)
class Ours:
    """Penstock with one of its strategies."""

    strategy: str

    def run(self, table: Surrogate, devices: int, budget: float, seed: int) -> Ran:
        """Run a study without an end of its own, whose deadline is the budget."""
        spec = spec_of(
            "anytime",
            n_trials=ENDLESS,
            sampler="tpe",
            strategy=getattr(penstock, self.strategy)(max_epochs=EPOCHS),
            seed=seed,
            deadline=budget,
        )
        places = [Device(f"cpu.s.{n}", "s", "cpu", (n,), None, 1) for n in range(devices)]
        clock = CountedClock()
        done = simulate([spec], places, _Counted(table, clock), clock=clock)
        steps = [
            (event.at, dict(event.metrics)[METRIC])
            for event in done.trace
            if isinstance(event, EpochReported) and event.at <= budget
        ]
        return Ran(path_of(steps), len(steps), clock.decided, budget)

    def close(self) -> None:
        """Do nothing: nothing was started."""


@dataclass
class Peer:
    """Somebody else's tuner, in a process that plays one study after another."""

    side: str
    folder: str | None
    version: str = ""
    _process: Any = field(default=None, repr=False)

    def __post_init__(self) -> None:
        self._process = subprocess.Popen(
            [_python(self.folder), PEERS / "anytime_side.py", self.side],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.version = self._hear()["version"]

    def run(self, table: Surrogate, devices: int, budget: float, seed: int) -> Ran:
        """Have it play a study, and read the table for it."""
        space = [
            [name, type(each).__name__.lower(), each.low, each.high, each.log]
            for name, each in SPACE.items()
        ]
        given = {"workers": devices, "budget": budget, "seed": seed, "epochs": EPOCHS}
        self._say(given | {"space": space})
        while (heard := self._hear()).get("ask"):
            params = tuple((name, heard["ask"][name]) for name in SPACE)
            self._say([table.curve(params), table.seconds(params)])
        steps = [(at, value) for at, value in heard["steps"] if at <= budget]
        return Ran(path_of(steps), len(steps), heard["decided"], budget)

    def close(self) -> None:
        """End its process."""
        self._process.stdin.close()
        self._ended()

    def _say(self, body: Any) -> None:
        self._process.stdin.write(json.dumps(body) + "\n")
        self._process.stdin.flush()

    def _hear(self) -> Any:
        line = self._process.stdout.readline()
        if not line:
            self._process.stdin.close()
            raise RuntimeError(f"{self.side} has ended with {self._ended()}: see what it printed")
        return json.loads(line)

    def _ended(self) -> int:
        code: int = self._process.wait(timeout=60)
        self._process.stdout.close()
        return code
