"""Costs of the profiler: real training with and without it, in turns, by CPU time.

    python -m benchmarks.counters --json FILE [--quick]

LeNet-5 on scikit-learn's digits, padded to 28 x 28, in batches of 32: blocks of steps with and
without a profiler, ABBA, so what drifts hits both. The CPU time is the whole process's, the
profiler's own thread included.

One sample a second costs less than a shared machine's noise. So the profiler is made to sample
``FASTER`` times as often, and the additional cost is divided by it: that is ``counter_overhead``.
Costs that do not depend on the rate are not in it, but in ``.plain``: the ratio at one sample a
second, with start, mark and take in each block. ``.direct`` is the CPU time of a sample alone.
"""

from __future__ import annotations

import argparse
import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
from penstock.profiling.counters.capabilities import capabilities
from penstock.tasks.system import profiler as profiler_module
from penstock.tasks.system.operators import operator_calls
from penstock.tasks.system.profiler import Profiler
from torch import nn

from testkit.results import Run

from ..lib.families import digits, mnist_lenet

BATCH = 32
FASTER = 50


class Training:
    """Steps over the digits, again and again."""

    def __init__(self) -> None:
        pixels, self.labels = digits()
        self.images = nn.functional.pad(pixels.view(-1, 1, 8, 8), (10, 10, 10, 10))
        self.model = mnist_lenet.LeNet({}).model()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.at = 0

    def step(self) -> None:
        """One batch."""
        self.at = self.at + BATCH if self.at + 2 * BATCH <= len(self.images) else 0
        batch = slice(self.at, self.at + BATCH)
        self.optimizer.zero_grad()
        nn.functional.cross_entropy(self.model(self.images[batch]), self.labels[batch]).backward()
        self.optimizer.step()

    def block(self, steps: int) -> tuple[float, float]:
        """CPU and wall seconds of a step, over ``steps``."""
        cpu, wall = time.process_time(), time.perf_counter()
        for _ in range(steps):
            self.step()
        return (time.process_time() - cpu) / steps, (time.perf_counter() - wall) / steps


#: CPU seconds of a step, averaged over the given number of steps.
Block = Callable[[Training, int], float]


def profiled(training: Training, steps: int) -> float:
    """CPU seconds of a step with a profiler whose window they are; its start counts as well."""
    cpu = time.process_time()
    profiler = Profiler.start()
    profiler.mark()
    for _ in range(steps):
        training.step()
    profiler.take()
    profiler.stop()
    return (time.process_time() - cpu) / steps


def hurried(training: Training, steps: int) -> float:
    """As ``Training.block``, while a profiler samples ``FASTER`` times as often as it does."""
    profiler_module.PERIOD = 1 / FASTER
    profiler = Profiler.start()
    spent = training.block(steps)[0]
    profiler_module.PERIOD = 1.0
    profiler.stop()
    return spent


def ratios(training: Training, steps: int, rounds: int, other: Block) -> list[float]:
    """CPU time of ``other`` by that of plain training, a round each."""
    found = []
    for _ in range(rounds):
        plain, with_it = training.block(steps)[0], other(training, steps)
        with_it += other(training, steps)
        plain += training.block(steps)[0]
        found.append(with_it / plain)
    return found


def interval(found: list[float]) -> tuple[float, float, float]:
    """The median and its 95 % bootstrap interval."""
    draw = random.Random(0)
    medians = sorted(median(draw.choices(found, k=len(found))) for _ in range(2000))
    return median(found), medians[50], medians[-51]


def estimated(middle: float, low: float, high: float) -> dict[str, Any]:
    """Return a median and its interval, as a figure."""
    return {"median": middle, "interval": {"low": low, "high": high}}


def sample_seconds(calls: int) -> float:
    """CPU seconds of one sample, with the threads that training has started."""
    profiler = Profiler.start()
    profiler.sample()
    spent = []
    for _ in range(calls):
        before = time.thread_time()
        profiler.sample()
        spent.append(time.thread_time() - before)
    profiler.stop()
    return median(spent)


def calls_seconds(training: Training) -> tuple[float, float]:
    """CPU seconds of the first profiled step, and the median of later ones."""
    spent = []
    for _ in range(8):
        before = time.process_time()
        operator_calls(training.step)
        spent.append(time.process_time() - before)
    return spent[0], median(spent[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    given = parser.parse_args()
    this_run = Run("counters", baseline="the same training without the profiler, in turns")
    torch.set_num_threads(1)
    training = Training()
    training.block(100)
    _, wall = training.block(100)
    load = os.getloadavg()[0]
    print(f"load before {load:.1f}")
    often = interval(ratios(training, int(0.5 / wall) + 1, 20 if given.quick else 80, hurried))
    plain = interval(ratios(training, int(2.0 / wall) + 1, 3 if given.quick else 10, profiled))
    sample = sample_seconds(200 if given.quick else 1000)
    first_calls, calls = calls_seconds(training)
    can = capabilities()
    figures = {
        "counter_overhead": estimated(*((each - 1) / FASTER for each in often)),
        "counter_overhead.plain": estimated(*(each - 1 for each in plain)),
        "counter_overhead.direct": sample,
        "sample_us": sample * 1e6,
        "step_ms": training.block(100)[0] * 1e3,
        "operator_calls_first_ms": first_calls * 1e3,
        "operator_calls_ms": calls * 1e3,
        "counters": sum(one.measured for one in can),
        "counters_absent": sum(not one.measured for one in can),
        "load.before": load,
        "load.after": os.getloadavg()[0],
    }
    for name, value in figures.items():
        print(f"{name:28}", value if isinstance(value, dict) else f"{value:10.5f}")
    this_run.write(given.json, figures)


if __name__ == "__main__":
    main()
