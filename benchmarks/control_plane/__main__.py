"""Costs of the control plane, compared with raw Celery on the same broker and pool, in one run.

Round trip: one empty epoch task at a time, from the decision to dispatch to the end of the commit
that accepted its epoch (two durable commits, publication, claim, trainer process, report); raw
Celery's from ``delay`` to ``get`` with its Redis result backend, its task done in the worker. Taken
in alternating blocks. Throughput: 8 trials on 8 slots, one empty epoch a task, against raw Celery
given all tasks at once (its best case). The ledger of both is on SQLite, or on a PostgreSQL server
of this machine (``--ledger postgresql``); ``commit_ms`` is a commit of one epoch. The engine alone:
an ordinary epoch event at 200 trials x 64 devices. Overhead: device time that is not training, in
real studies of real epochs, compared with the plain PyTorch loop. Start-up and memory: the
quickstart in a fresh state folder.

``--beside COMMIT`` compares two checkouts instead: ten pairs (with ``--quick`` two), each checkout
by the quick form of its own benchmark and, for CPU time, by ``cpu_here`` of this one. Given are
the paired ratios this / COMMIT: their median, and its one-sided upper bound by the sign test.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from contextlib import ExitStack
from dataclasses import asdict
from itertools import repeat
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from penstock.scheduler.model.study import Code, StrategySpec, StudySpec

from benchmarks.control_plane import cpu_here
from benchmarks.lib import task_cpu
from benchmarks.lib.engine_drive import Drive
from benchmarks.lib.plane import SLOTS, Plane, plane
from benchmarks.lib.studies import EPOCHS, idle_memory, installation, overhead, start_up
from testkit.checkouts import Checkout, pairs
from testkit.postgres import server
from testkit.results import Run, summary

#: Empty tasks over which CPU time is taken; the kernel counts it in hundredths of a second.
CPU_TASKS = 800

#: Figures of which a ratio says nothing.
OF_THE_MACHINE = {"cores", "load_before", "load_after"}


def round_trips(at: Plane, blocks: int, size: int) -> dict[str, float]:
    """Medians and 99th percentiles in ms, over alternating blocks."""
    ours, raw = [], []
    for _ in range(blocks):
        ours += at.study(1, size)[1]
        raw += at.raw_round_trips(size)
    p50, raw_p50 = median(ours) * 1e3, median(raw) * 1e3
    p99, raw_p99 = quantiles(ours, n=100)[98] * 1e3, quantiles(raw, n=100)[98] * 1e3
    return {
        "rtt_ms.p50": p50,
        "rtt_ms.p99": p99,
        "raw_rtt_ms.p50": raw_p50,
        "raw_rtt_ms.p99": raw_p99,
        "ratio_p50": p50 / raw_p50,
        "ratio_p99": p99 / raw_p99,
    }


def throughput(at: Plane, runs: int, tasks: int) -> dict[str, float]:
    """Tasks a second: medians of ``runs``, ours and raw Celery's in turns."""
    ours, raw = [], []
    for _ in range(runs):
        ours.append(tasks / at.study(SLOTS, tasks // SLOTS)[0])
        raw.append(tasks / at.raw_burst(tasks))
    return {
        "tasks_per_s": median(ours),
        "raw_tasks_per_s": median(raw),
        "tasks_ratio": median(ours) / median(raw),
    }


def engine_event(events: int = 2000, trials: int = 200, devices: int = 64) -> dict[str, float]:
    """Microseconds for an epoch that ends a segment and goes on under the standing plan."""
    plan = StrategySpec("full", max_epochs=10 * events)
    code = Code("nowhere:nothing", "", "")
    spec = StudySpec("s", "s", "empty", code, "v", "minimize", trials, (), "random", "{}", plan)
    drive = Drive(repeat(()), lambda _, epoch: str(epoch))
    drive.begin(spec, devices)
    for _ in range(events):
        drive.segment()
    spans = drive.spans
    return {"event_us": median(spans) * 1e6, "event_us.p99": quantiles(spans, n=100)[98] * 1e6}


def of_checkout(checkout: Checkout) -> dict[str, float]:
    """The figures of a checkout's own benchmark, quick form, and its CPU time a task."""
    with tempfile.TemporaryDirectory() as folder:
        own, cpu = Path(folder) / "own.json", Path(folder) / "cpu.json"
        checkout.run("-m", "benchmarks.control_plane", "--quick", "--json", str(own))
        program = [cpu_here.__file__, "--tasks", str(CPU_TASKS), "--json", str(cpu)]
        checkout.run(*program)
        figures = json.loads(own.read_text())
        figures.pop("run", None)  # older commits have none
        return figures | json.loads(cpu.read_text())


def compare(commit: str, n: int) -> dict[str, Any]:
    """Print this checkout's figures over those of ``commit``, in ``n`` alternating pairs."""
    ratios, measured = pairs(of_checkout, commit, n)
    ratios = {name: ratio for name, ratio in ratios.items() if name not in OF_THE_MACHINE}
    bound = next(iter(ratios.values())).confidence
    print(f"{'this / ' + commit:32} {'median':>10} {f'upper {bound:.1%}':>12}")
    for name, ratio in ratios.items():
        print(f"{name:32} {ratio.median:10.4f} {ratio.upper:12.4f}")
    sides = {
        side: {name: summary([each[at][name] for each in measured]) for name in ratios}
        for at, side in enumerate(("here", "there"))
    }
    written = {name: asdict(ratio) for name, ratio in ratios.items()}
    return {"commit": commit, "paired": sides, "ratios": written, "pairs": measured}


def main() -> None:
    """Print a table, write the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="a tenth of the work: rough figures")
    quick = parser.parse_known_args()[0].quick
    alone = parser.add_mutually_exclusive_group()
    alone.add_argument("--ledger", choices=("sqlite", "postgresql"), default="sqlite")
    alone.add_argument("--beside", metavar="COMMIT", help="ten pairs of this checkout and another")
    options = parser.parse_args()
    name = "control_plane" if options.ledger == "sqlite" else "control_plane_postgresql"
    baseline = options.beside or "raw Celery with its Redis result backend"
    this_run = Run(name, baseline=baseline)
    if options.beside:
        figures = compare(options.beside, 2 if quick else 10)
    else:
        figures = measure(options.ledger, quick=quick)
    this_run.write(options.json, figures)


def measure(ledger: str, *, quick: bool) -> dict[str, Any]:
    """Measure this checkout and print a table."""
    figures: dict[str, Any] = {"cores": os.cpu_count(), "load_before": os.getloadavg()[0]}
    figures |= engine_event()
    with ExitStack() as undo:
        url = None
        if ledger == "postgresql":
            url = undo.enter_context(server(fsync=True)).create("ledger")
        at = undo.enter_context(plane(SLOTS, url))
        figures |= round_trips(at, blocks=4 if quick else 10, size=25 if quick else 100)
        figures["commit_ms.p50"] = median(at.ledger.of_one) * 1e3
        figures |= throughput(at, runs=5, tasks=160 if quick else 800)
        figures |= task_cpu.cpu_ms(at, SLOTS, CPU_TASKS)
    with installation("cpu:1x1") as settings:
        for kind, epochs in EPOCHS.items():
            figures |= overhead(settings, kind, epochs // 4 if quick else epochs)
        figures |= idle_memory(settings)
    figures |= start_up()
    figures["load_after"] = os.getloadavg()[0]
    for name, value in figures.items():
        print(f"{name:32} {value:10.4f}" if isinstance(value, float) else f"{name:32} {value:10}")
    return figures


if __name__ == "__main__":
    main()
