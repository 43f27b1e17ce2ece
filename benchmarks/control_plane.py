"""What the control plane costs, beside raw Celery on the same broker and pool, in one run.

Round trip: one empty epoch task at a time, from the dispatch to its report read by the dispatcher;
raw Celery's from ``apply_async`` to ``get``. Taken in turns. Throughput: as many tasks as possible
through one worker with 8 slots; ours keeps 8 out and sends the next when a report is read, raw
Celery is given all of them at once (its best case). Ours hands each task on to a trainer process;
raw Celery does its nothing in the worker.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from penstock.app import broker
from penstock.app.celery import worker_argv
from penstock.app.settings import Settings
from penstock.app.transport import RedisTransport
from penstock.profiling.devices import Device
from penstock.scheduler.decisions import Dispatch, Member, Segment
from penstock.scheduler.study import Code, StudySpec

SLOTS = 8
SPEC = StudySpec(
    id="bench",
    name="bench",
    contract="empty",
    code=Code("nowhere:nothing", "", ""),
    metric="loss",
    direction="minimize",
    n_trials=1,
    space=(),
)


@dataclass
class Plane:
    """One broker with a worker of ours and a raw Celery worker on it, both with 8 threads' work."""

    settings: Settings
    transport: RedisTransport
    device: Device
    raw: Any
    fences: count

    def dispatch(self, slot: int) -> tuple[Dispatch, StudySpec]:
        """The next empty epoch of the slot's trial."""
        fence = next(self.fences)
        segment = Segment(f"bench-{slot:04d}", fence, 1, fence, (Member(self.device.name, slot),))
        dispatch = Dispatch(
            id=f"{fence}.0",
            cause=fence,
            study=SPEC.id,
            number=slot,
            params=(("lr", 0.01), ("width", 64)),
            segment=segment,
            parents=(),
            expect="",
            final=False,
        )
        return dispatch, SPEC


@contextmanager
def plane() -> Iterator[Plane]:
    """Everything up and warm; gone afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(home=Path(folder) / "home")
        settings.ensure_home()
        broker.start(settings)
        url = broker.broker_url(settings)
        os.environ["RAW_BROKER"] = url
        transport = RedisTransport(url, os.urandom(32))
        transport.open()
        cores = tuple(sorted(os.sched_getaffinity(0)))
        device = Device("cpu.bench.0", "bench", "cpu", cores, None, SLOTS)
        raw_argv = [sys.executable, "-m", "celery", "-A", "benchmarks.raw_celery", "worker"]
        raw_argv += ["--pool", "threads", "--concurrency", str(SLOTS), "--queues", "raw"]
        raw_argv += ["--without-gossip", "--without-mingle", "--loglevel", "WARNING"]
        environment = {**os.environ, **settings.environment()}
        processes: list[subprocess.Popen] = []
        try:
            with (settings.logs / "workers.log").open("ab") as log:
                for argv, place in ((worker_argv(device), settings.home), (raw_argv, Path())):
                    process = subprocess.Popen(
                        argv, env=environment, cwd=place, stdout=log, stderr=log
                    )
                    processes.append(process)
            from benchmarks import raw_celery

            found = Plane(settings, transport, device, raw_celery.epoch, count(1))
            raw_celery.epoch.delay("warm", 0).get(timeout=60)
            while not transport.survey([], 0.0).devices:
                time.sleep(0.05)
            for _ in range(3):
                burst(found, 10 * SLOTS)
                raw_burst(found, 10 * SLOTS)
            yield found
        finally:
            for process in processes:
                process.terminate()
            for process in processes:
                process.wait(30)
            transport.close()
            broker.stop(settings)


def round_trip(at: Plane) -> float:
    """Seconds from one dispatch to its report read; the acknowledgement is not waited for."""
    started = time.perf_counter()
    at.transport.carry_out(dispatches=[at.dispatch(0)])
    while not (messages := at.transport.receive(5.0)):
        pass
    seconds = time.perf_counter() - started
    at.transport.carry_out(acks=messages)
    return seconds


def raw_round_trip(at: Plane) -> float:
    started = time.perf_counter()
    result = at.raw.delay("bench-0000", 1)
    result.get(timeout=30)
    seconds = time.perf_counter() - started
    result.forget()
    return seconds


def burst(at: Plane, tasks: int) -> float:
    """Tasks a second, each slot given its next task when its report is read."""
    started = time.perf_counter()
    at.transport.carry_out(dispatches=[at.dispatch(slot) for slot in range(SLOTS)])
    sent, done = SLOTS, 0
    while done < tasks:
        messages = at.transport.receive(5.0)
        done += len(messages)
        free = [int(m.body["trial"][-4:]) for m in messages][: max(0, tasks - sent)]
        sent += len(free)
        at.transport.carry_out(dispatches=[at.dispatch(slot) for slot in free], acks=messages)
    return tasks / (time.perf_counter() - started)


def raw_burst(at: Plane, tasks: int) -> float:
    started = time.perf_counter()
    results = [at.raw.delay("bench-0000", n) for n in range(tasks)]
    for result in results:
        result.get(timeout=120)
    seconds = time.perf_counter() - started
    for result in results:
        result.forget()
    return tasks / seconds


def measure_round_trips(at: Plane, rounds: int) -> dict[str, float]:
    """Median and 99th percentile in ms of ours and raw Celery's, taken in turns."""
    ours, raw = [], []
    for _ in range(rounds):
        ours.append(round_trip(at) * 1e3)
        raw.append(raw_round_trip(at) * 1e3)
    p99, raw_p99 = quantiles(ours, n=100)[98], quantiles(raw, n=100)[98]
    return {
        "rtt_p50_ms": median(ours),
        "raw_rtt_p50_ms": median(raw),
        "rtt_ratio_p50": median(ours) / median(raw),
        "rtt_p99_ms": p99,
        "raw_rtt_p99_ms": raw_p99,
        "rtt_ratio_p99": p99 / raw_p99,
    }


def measure_throughput(at: Plane, tasks: int, runs: int = 5) -> dict[str, float]:
    """Medians of ``runs`` bursts each, in turns."""
    pairs = [(burst(at, tasks), raw_burst(at, tasks)) for _ in range(runs)]
    ours, raw = (median(column) for column in zip(*pairs, strict=True))
    return {"worker_tasks_per_s": ours, "raw_tasks_per_s": raw, "worker_tasks_ratio": ours / raw}


def main() -> None:
    """Print a table, write the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    figures: dict[str, Any] = {"cores": os.cpu_count(), "load_before": os.getloadavg()[0]}
    with plane() as at:
        figures |= measure_round_trips(at, 100 if options.quick else 500)
        figures |= measure_throughput(at, 200 if options.quick else 800)
    figures["load_after"] = os.getloadavg()[0]
    for name, value in figures.items():
        print(f"{name:24} {value:10.3f}" if isinstance(value, float) else f"{name:24} {value:10}")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
