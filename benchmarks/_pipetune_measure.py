"""Measures a configuration of hyperparameters for real: accuracy by epoch, seconds per step.

Accuracy is of one training, so all systems share it exactly. Steps are timed in windows, one of
each system configuration in turn; side by side means that another process trains the same on one
thread.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

import torch
from penstock.profiling.knobs.knobs import SystemConfig, config_text
from penstock.tasks.contracts.contract import Data
from penstock.tasks.system.profiler import Profiler
from penstock.tasks.system.system import System
from penstock.tasks.training import loop

from ._pipetune_replay import ALL, Measured
from ._pipetune_workloads import WORKLOADS, Tuned

WARM, STEPS = 1, 3


class Steps:
    """Training steps of one trial under one system configuration, without end."""

    def __init__(self, code: Tuned, data: Data, config: SystemConfig) -> None:
        self._system = System(config)
        self._code, (self._inputs, self._targets) = code, data.train.tensors
        self._model = code.model()
        self._system.shape(self._model)
        self._optimizer = code.optimizer(self._model)
        self._batch, self._at = min(code.params["batch_size"], len(self._inputs)), 0

    def step(self) -> None:
        """One step."""
        if self._at + self._batch > len(self._inputs):
            self._at = 0
        rows = slice(self._at, self._at + self._batch)
        inputs = self._inputs[rows]
        if self._system.channels_last and inputs.dim() == 4:
            inputs = inputs.contiguous(memory_format=torch.channels_last)
        self._optimizer.zero_grad()
        self._code.loss(self._model, (inputs, self._targets[rows])).backward()
        self._optimizer.step()
        self._at += self._batch

    def window(self, seconds: float) -> float:
        """Seconds a step, over ``STEPS`` and ``seconds`` at least, after some to warm up."""
        self._system.enter()
        for _ in range(WARM):
            self.step()
        began, steps = time.perf_counter(), 0
        while steps < STEPS or time.perf_counter() - began < seconds:
            self.step()
            steps += 1
        return (time.perf_counter() - began) / steps


def _neighbour(pipe: Connection) -> None:
    """Train what the pipe names, on one thread, until the pipe names something else."""
    torch.set_num_threads(1)
    while order := pipe.recv():
        name, params, config = order
        code = WORKLOADS[name](params)
        steps = Steps(code, code.data(), tuple(map(tuple, config)))
        torch.set_num_threads(1)
        steps.step()
        pipe.send("at work")
        while not pipe.poll():
            steps.step()
        pipe.recv()


@contextmanager
def neighbour() -> Iterator[Connection]:
    """A second process for what is measured side by side."""
    ours, its = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_neighbour, args=(its,))
    process.start()
    try:
        yield ours
    finally:
        ours.send(None)  # ends its loop, or stops its work
        process.join(10)
        if process.is_alive():
            process.kill()


def measure(
    name: str, params: dict[str, Any], epochs: int, windows: int, seconds: float, beside: Connection
) -> Measured:
    """All that replays need of one configuration."""
    code = WORKLOADS[name](params)
    data = code.data()
    torch.set_num_threads(1)
    training = loop.start(code, data, seed=0, number=0)
    accuracy = tuple(
        float(loop.run_epoch(training, lambda *_: None).metrics["accuracy"]) for _ in range(epochs)
    )
    made = {config: Steps(code, data, config) for config in ALL}
    alone: dict[str, list[float]] = {config_text(config): [] for config in ALL}
    single = [config for config in ALL if dict(config).get("threads") == 1]
    pair: dict[str, list[float]] = {config_text(config): [] for config in single}
    profiler = Profiler.start()
    try:
        made[()].window(seconds)
        profiler.mark()
        made[()].window(seconds)
        counters = profiler.take().values
    finally:
        profiler.stop()
    for turn in range(windows):
        for config in ALL[:: 1 if turn % 2 == 0 else -1]:
            alone[config_text(config)].append(made[config].window(seconds))
    for config in single:
        beside.send((name, params, config))
        beside.recv()
        for _ in range(windows):
            pair[config_text(config)].append(made[config].window(seconds))
        beside.send("stop")
    examples = len(data.train)
    return Measured(
        params=params,
        steps=-(-examples // params["batch_size"]),
        accuracy=accuracy,
        alone={key: tuple(each) for key, each in alone.items()},
        pair={key: tuple(each) for key, each in pair.items()},
        counters={key: float(value) for key, value in dict(counters).items()},
    )
