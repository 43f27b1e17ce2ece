"""Measures by hand the seconds of an epoch under every system configuration, in alternation.

Epochs are those of a trainer (``tasks.training.loop``), evaluation and reading among them. Each
round has one of every configuration, and what is kept of it are ratios to the default's. Where a
device has one core, another process trains the same on the other core meanwhile.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle
from multiprocessing.connection import Connection
from statistics import median
from typing import Any

import torch
from penstock.profiling.knobs.knobs import (
    SlotClass,
    SystemConfig,
    config_text,
    merged,
    system_configs,
)
from penstock.tasks.system.precision import native_bf16
from penstock.tasks.system.system import System
from penstock.tasks.training import loop
from penstock.tasks.training.data import by_rows
from penstock.tasks.training.training import Training

from .judged import BOTH_CORES, WORKLOADS, Tuned, Workload

BF16: SystemConfig = (("autocast", "bfloat16"),)


@dataclass(frozen=True)
class Times:
    """Seconds of an epoch on a slot: under the default, and of each configuration over that."""

    default: float
    ratios: Mapping[str, float]

    @property
    def best(self) -> str:
        """The fastest configuration of those that compute in float32."""
        usual = [config for config in self.ratios if "autocast" not in config]
        return min(usual, key=lambda config: self.ratios[config])

    @property
    def gain(self) -> float:
        """The part of an epoch's time that an oracle saves."""
        return 1 - self.ratios[self.best]

    def seconds(self, config: str) -> float:
        """The seconds of an epoch under a configuration."""
        return self.default * self.ratios[config]


def configs_of(code: Tuned, data: Any, cores: int) -> list[SystemConfig]:
    """The configurations that change anything for this model and data; the default first."""
    names = ["threads"] * (cores > 1)
    names += ["memory_format"] * any(each.dim() == 4 for each in code.model().parameters())
    names += ["loader_workers"] * (by_rows(data.train) is None)
    slot = SlotClass("cpu", cores)
    return [(), *(system_configs(slot, ["exact", "rounding"], tuple(names)) if names else ())]


def by_hand(code_of: type[Tuned], workload: Workload, devices: str, rounds: int) -> Times:
    """Time a workload's epochs on a slot of ``devices``, and in bfloat16 where that is native."""
    code = code_of(workload.params())
    data = code.data()
    cores = 2 if devices == BOTH_CORES else 1
    configs = configs_of(code, data, cores)
    if cores == 1:
        with _company(code_of, workload), _core(0):
            return _timed(code, data, configs, rounds, 1)
    return _timed(code, data, configs, rounds, 2)


def _timed(
    code: Tuned, data: Any, configs: Sequence[SystemConfig], rounds: int, threads: int
) -> Times:
    made = {config: _started(code, data, config, threads) for config in configs}
    ratios = _ratios(made, rounds)
    defaults = ratios.pop("seconds")
    found = {config_text(config): median(ratios[config_text(config)]) for config in configs}
    if native_bf16(torch.device("cpu")):
        best = min(configs, key=lambda config: found[config_text(config)])
        low = {merged(each, BF16) for each in ((), best)}
        both = {config: _started(code, data, config, threads) for config in low} | {(): made[()]}
        found |= {key: median(each) for key, each in _ratios(both, rounds).items() if "auto" in key}
    return Times(median(defaults), found)


def _started(code: Tuned, data: Any, config: SystemConfig, threads: int) -> Training:
    """A trial that has trained one epoch, which is not counted."""
    run = loop.start(code, data, 0, 0, system=System({"threads": threads} | dict(config)))
    _epoch(run)
    return run


def _epoch(run: Training) -> float:
    run.system.enter()
    return loop.run_epoch(run, lambda *_: None).seconds


def _ratios(made: Mapping[SystemConfig, Training], rounds: int) -> dict[str, list[float]]:
    """Ratios to the default's epoch of the same round; ``seconds`` are the default's own."""
    found: dict[str, list[float]] = {}
    for number in range(rounds):
        order = list(made)[:: 1 if number % 2 else -1]
        seconds = {config: _epoch(made[config]) for config in order}
        found.setdefault("seconds", []).append(seconds[()])
        for config, each in seconds.items():
            found.setdefault(config_text(config), []).append(each / seconds[()])
    return found


@contextmanager
def _core(number: int) -> Iterator[None]:
    """This process on one core."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {sorted(before)[number % len(before)]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _trains(pipe: Connection, name: str, twin: bool, params: dict[str, Any]) -> None:
    """Train on the second core until the pipe has something."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    workload = WORKLOADS[name]
    code = (workload.twin if twin else workload.code)(params)
    run = _started(code, code.data(), (), 1)
    pipe.send("at work")
    for _ in cycle([()]):
        run.system.enter()
        loop.run_epoch(run, lambda *_: None)
        if pipe.poll():
            return


@contextmanager
def _company(code: type[Tuned], workload: Workload) -> Iterator[None]:
    """Another process that trains the same on the other core."""
    ours, its = multiprocessing.Pipe()
    name = next(key for key, each in WORKLOADS.items() if code in (each.code, each.twin))
    given = (its, name, code is WORKLOADS[name].twin, workload.params())
    process = multiprocessing.get_context("spawn").Process(target=_trains, args=given)
    process.start()
    try:
        ours.recv()
        yield
    finally:
        ours.send("enough")
        process.join(30)
        if process.is_alive():
            process.kill()
