"""What the profiler costs: real training with and without it, in turns, by CPU time.

    python -m benchmarks.counters --json FILE [--quick]

LeNet-5 on scikit-learn's digits, padded to 28 x 28, in batches of 32. A block is a fixed number of
steps; in one half of the blocks a profiler samples each second, and they begin with a mark and end
with a take. The CPU time is the whole process's, the profiler's own thread included. The order is
ABBA, so what drifts hits both. A shared machine is noisier than what is measured, so the ratio has
an interval, and stands beside the direct cost: the CPU time of a sample, once a second.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import time
from pathlib import Path
from statistics import median

import torch
from penstock.profiling.counters.capabilities import capabilities
from penstock.tasks.operator_mix import operator_mix
from penstock.tasks.profiler import PERIOD, Profiler
from sklearn.datasets import load_digits
from torch import nn

BATCH = 32


def lenet() -> nn.Module:
    """LeNet-5 with ReLU and max pooling."""
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(400, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, 10),
    )


class Training:
    """Steps over the digits, again and again."""

    def __init__(self) -> None:
        table = load_digits()
        images = torch.tensor(table.images / 16, dtype=torch.float32).unsqueeze(1)
        self.images = nn.functional.pad(images, (10, 10, 10, 10))
        self.labels = torch.tensor(table.target)
        self.model = lenet()
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


def profiled(training: Training, steps: int) -> tuple[float, float]:
    """As ``Training.block``, with a profiler whose window it is; its start counts as well."""
    cpu, wall = time.process_time(), time.perf_counter()
    profiler = Profiler.start()
    profiler.mark()
    for _ in range(steps):
        training.step()
    profiler.take()
    spent = (time.process_time() - cpu) / steps, (time.perf_counter() - wall) / steps
    profiler.stop()
    return spent


def interval(ratios: list[float]) -> tuple[float, float]:
    """A 95 % bootstrap interval of the median."""
    draw = random.Random(0)
    medians = sorted(median(draw.choices(ratios, k=len(ratios))) for _ in range(2000))
    return medians[50], medians[-51]


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


def mix_seconds(training: Training) -> tuple[float, float]:
    """CPU seconds of the first profiled step, and the median of later ones."""
    spent = []
    for _ in range(8):
        before = time.process_time()
        operator_mix(training.step)
        spent.append(time.process_time() - before)
    return spent[0], median(spent[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="short blocks")
    given = parser.parse_args()
    torch.set_num_threads(1)
    training = Training()
    training.block(100)
    _, wall = training.block(100)
    steps = max(50, int((2.0 if given.quick else 5.0) / wall))
    rounds = 5 if given.quick else 15
    print(f"load before {os.getloadavg()[0]:.1f}; {2 * rounds} blocks of {steps} steps each way")
    ratios = []
    plain: list[tuple[float, float]] = []
    for _ in range(rounds):
        first, with_it = training.block(steps), profiled(training, steps)
        again, last = profiled(training, steps), training.block(steps)
        plain += [first, last]
        ratios.append((with_it[0] + again[0]) / (first[0] + last[0]))
    sample = sample_seconds(200 if given.quick else 1000)
    first_mix, mix = mix_seconds(training)
    step = median(cpu for cpu, _ in plain)
    low, high = interval(ratios)
    can = capabilities()
    figures = {
        "counter_overhead": median(ratios) - 1,
        "counter_overhead.low": low - 1,
        "counter_overhead.high": high - 1,
        "counter_overhead.direct": sample / PERIOD,
        "sample_us": sample * 1e6,
        "step_ms": step * 1e3,
        "operator_mix_first_ms": first_mix * 1e3,
        "operator_mix_ms": mix * 1e3,
        "counters": sum(one.measured for one in can),
        "counters_absent": sum(not one.measured for one in can),
        "load": os.getloadavg()[0],
    }
    for name, value in figures.items():
        print(f"{name:26} {value:10.4f}")
    if given.json:
        given.json.write_text(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
