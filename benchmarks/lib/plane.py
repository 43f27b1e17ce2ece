"""A control plane to measure: broker, ledger, runner in this process, our worker, a raw worker.

The runner is the scheduler's own loop with its ledger (SQLite with synchronous FULL, or PostgreSQL
with fsync on); only its process is shared with the benchmark. The worker is `celery -A penstock
worker` with a trainer process a slot, the raw one plain Celery with its Redis result backend, same
pool, same broker.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from penstock.app.broker import server
from penstock.app.broker.transport import RedisTransport
from penstock.app.common.clock import WallClock
from penstock.app.extensions import PLUGS
from penstock.app.host.settings import Settings
from penstock.app.ledger.ledger import SqlLedger
from penstock.app.ledger.writes import Batch
from penstock.app.node.worker.celery import worker_argv
from penstock.app.server.optuna_bridge.samplers import SamplerHost
from penstock.app.server.runner.runner import Runner
from penstock.profiling.devices.device import Device
from penstock.scheduler.engine.engine import Engine
from penstock.scheduler.model.events import PolicyChosen, StudySubmitted
from penstock.scheduler.model.study import Code, StrategySpec, StudySpec

from benchmarks.lib.task_cpu import cpu_seconds

SLOTS = 8
#: Seconds between two looks at whether processes are idle, how many looks there are, and the share
#: of a core that those may take together which are.
SETTLE_LOOK, SETTLE_LOOKS, IDLE_SHARE = 0.5, 120, 0.05


def empty_study(name: str, trials: int, epochs: int) -> StudySpec:
    """A study of ``trials`` x ``epochs`` empty tasks of one epoch each."""
    return StudySpec(
        id=name,
        name=name,
        contract="empty",
        code=Code("nowhere:nothing", "", ""),
        metric="loss",
        direction="minimize",
        n_trials=trials,
        space=(),
        sampler="random",
        strategy=StrategySpec("full", max_epochs=epochs),
        max_segment=1,
    )


class Stopwatch:
    """The ledger, when each epoch's commit had returned, how long those of one took (seconds)."""

    def __init__(self, inner: SqlLedger) -> None:
        self._inner = inner
        self.accepted: list[tuple[int, float]] = []
        self.of_one: list[float] = []

    def commit(self, batch: Batch) -> None:
        started = time.perf_counter()
        self._inner.commit(batch)
        if len(batch.epochs) == 1:
            self.of_one.append(time.perf_counter() - started)
        now = time.time()
        self.accepted.extend((epoch.fence, now) for epoch in batch.epochs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


@dataclass
class Plane:
    """Everything up. ``study`` runs an empty study to its end, turn by turn."""

    runner: Runner
    ledger: Stopwatch
    raw: Any
    numbers: count = field(default_factory=lambda: count(1))

    def study(self, trials: int, epochs: int) -> tuple[float, list[float]]:
        """Run ``trials`` x ``epochs`` empty tasks of one epoch each.

        Returns the whole time, and for each task the time from the dispatch's decision to the end
        of the commit that accepted its epoch (seconds).
        """
        name = f"bench{next(self.numbers)}"
        spec = empty_study(name, trials, epochs)
        state = self.runner.engine.state
        self.ledger.accepted.clear()
        decided: dict[int, float] = {}
        started = time.time()
        self.runner.start(StudySubmitted(at=started, study=spec))
        while state.studies:
            for fence, attempt in state.attempts.items():
                decided.setdefault(fence, attempt.dispatched_at)
            self.runner.turn(1.0)
        seconds = time.time() - started
        spans = [at - decided[fence] for fence, at in self.ledger.accepted if fence in decided]
        assert len(self.ledger.accepted) == trials * epochs
        return seconds, spans

    def raw_round_trips(self, n: int) -> list[float]:
        """Seconds from ``delay`` to ``get``, one raw task at a time."""
        spans = []
        for number in range(n):
            started = time.perf_counter()
            result = self.raw.delay("bench-0000", number)
            result.get(timeout=30)
            spans.append(time.perf_counter() - started)
            result.forget()
        return spans

    def raw_burst(self, n: int) -> float:
        """Seconds for ``n`` raw tasks given all at once: raw Celery's best case."""
        started = time.perf_counter()
        results = [self.raw.delay("bench-0000", number) for number in range(n)]
        for result in results:
            result.get(timeout=120)
        seconds = time.perf_counter() - started
        for result in results:
            result.forget()
        return seconds


def _settle() -> None:
    """Wait until all that we have started is idle.

    What forks trainers still imports their libraries after the first ones have come, for seconds.
    """
    before = sum(cpu_seconds().values())
    for _ in range(SETTLE_LOOKS):
        time.sleep(SETTLE_LOOK)
        now = sum(cpu_seconds().values())
        if now - before <= IDLE_SHARE * SETTLE_LOOK:
            return
        before = now
    raise RuntimeError("what the benchmark has started does not come to rest")


@contextmanager
def plane(slots: int, ledger_url: str | None = None) -> Iterator[Plane]:
    """A warm plane with ``slots`` slots, removed afterwards. ``ledger_url`` None is SQLite."""
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(home=Path(folder) / "home", ledger=ledger_url)
        settings.ensure_home()
        server.start(settings)
        url = server.broker_url(settings)
        os.environ["RAW_BROKER"] = url
        transport = RedisTransport(url, os.urandom(32))
        ledger = Stopwatch(SqlLedger.open(settings.ledger_url))
        clock = WallClock()
        runner = Runner(Engine(plugs=PLUGS), ledger, transport, SamplerHost(), clock)
        # As the scheduler begins, but for the policy.
        runner.start(PolicyChosen(at=clock.now(), policy="fifo", fill_at_end=True))
        cores = tuple(sorted(os.sched_getaffinity(0)))
        device = Device("cpu.bench.0", "bench", "cpu", cores, None, slots)
        raw_argv = [sys.executable, "-m", "celery", "-A", "benchmarks.lib.raw_celery", "worker"]
        raw_argv += ["--pool", "threads", "--concurrency", str(slots), "--queues", "raw"]
        raw_argv += ["--without-gossip", "--without-mingle", "--loglevel", "WARNING"]
        environment = {**os.environ, **settings.environment()}
        processes = []
        try:
            with (settings.logs / "workers.log").open("ab") as log:
                for argv, place in ((worker_argv(device), settings.home), (raw_argv, Path())):
                    processes.append(
                        subprocess.Popen(argv, env=environment, cwd=place, stdout=log, stderr=log)
                    )
            from benchmarks.lib import raw_celery

            found = Plane(runner, ledger, raw_celery.epoch)
            raw_celery.epoch.delay("warm", 0).get(timeout=60)
            for _ in range(3):
                found.study(slots, 10)
                found.raw_burst(10 * slots)
            _settle()
            yield found
        finally:
            for process in processes:
                process.terminate()
            for process in processes:
                process.wait(30)
            transport.close()
            ledger.close()
            server.stop(settings)
