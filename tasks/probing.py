"""Trying system configurations before a trial's first epoch, on a copy that is thrown away.

Theory of operation. A rounding knob changes the last bits, so in a bitwise trial it is fixed before
the first step. What it would gain is measured on a copy of the fresh model: windows of a few
forward and backward passes over the trial's own batches, under one configuration after the other
and under the default between them. The optimiser's step is left out, which costs all of them the
same. It ends when the seconds are used up that it was given; the trial itself is not touched.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import Any, Protocol

import torch

from ..profiling.knobs import SystemConfig
from .backward import backward
from .failure import failure_of
from .keys import key
from .loop import Training
from .reading import length, read
from .system import System

#: Passes of a window: the first is not counted.
WARM_UP, COUNTED = 1, 3
#: Windows of each configuration at most: what is not decided by then, another trial measures.
ROUNDS = 4


class Watch(Protocol):
    """Whom a probe answers to."""

    def check(self) -> None:
        """Called before every pass; may raise to abandon it."""

    def tries(self, config: SystemConfig) -> None:
        """``config`` is tried from here on; (): nothing is."""


Windows = list[tuple[SystemConfig, float, float]]
Failed = list[tuple[SystemConfig, str]]


def probe(
    run: Training, tried: Sequence[SystemConfig], seconds: float, watch: Watch
) -> tuple[Windows, Failed]:
    """Windows of each configuration as in ``stretches.windows``, and those that raised, and why."""
    until = time.perf_counter() + seconds
    copies = _Copies(run, watch.check)
    found: Windows = []
    failed: Failed = []
    try:
        before = copies.window(())
        for config in tuple(tried) * ROUNDS:
            began = time.perf_counter()
            if began >= until:
                break
            if any(config == bad for bad, _ in failed):
                continue
            watch.tries(config)
            try:
                here = copies.window(config)
            except Exception as error:  # whatever the user's code raises under it
                failed.append((config, _why(error)))
                copies.drop(config)
                continue
            finally:
                watch.tries(())
            after = copies.window(())
            found.append((config, here / ((before + after) / 2), time.perf_counter() - began))
            before = after
    finally:
        run.system.enter()
    return found, failed


def _why(error: Exception) -> str:
    failure = failure_of(error)
    return f"{failure.kind}: {str(failure).partition(chr(10))[0]}"


class _Copies:
    """A copy of the model for each configuration, made when it is first wanted."""

    def __init__(self, run: Training, check: Callable[[], None]) -> None:
        self._run = run
        self._check = check
        self._models: dict[SystemConfig, torch.nn.Module] = {}
        generator = torch.Generator().manual_seed(key("probe", run.seed, run.number))
        order = torch.randperm(length(run.data.train), generator=generator)
        self._parts = torch.split(order, run.batch_size)

    def window(self, config: SystemConfig) -> float:
        """The median of a few passes' seconds under ``config``."""
        try:
            return self._window(config)
        except Exception as error:
            if len(self._models) < 2 or failure_of(error).kind != "memory":
                raise
        self._models.clear()  # what copies for the others take is not this one's fault
        return self._window(config)

    def _window(self, config: SystemConfig) -> float:
        run, system = self._run, System(config)
        system.enter()
        if config not in self._models:
            self._models[config] = copy.deepcopy(run.model)
            system.shape(self._models[config], run.shards)
        model = self._models[config].train()
        passes = self._passes(model, system)
        times = []
        for _ in range(WARM_UP + COUNTED):
            self._check()
            began = time.perf_counter()
            next(passes)
            if run.device.type == "cuda":
                torch.cuda.synchronize(run.device)
            times.append(time.perf_counter() - began)
        return median(times[WARM_UP:])

    def drop(self, config: SystemConfig) -> None:
        """Let go of a copy that is of no use."""
        self._models.pop(config, None)

    def _passes(self, model: torch.nn.Module, system: System) -> Iterator[None]:
        run = self._run
        parts = (self._parts * (1 + WARM_UP + COUNTED))[: WARM_UP + COUNTED]
        batches: Iterator[tuple[Any, int]] = read(
            run.data.train, parts, range(len(parts)), run.device, channels_last=system.channels_last
        )
        for batch, size in batches:
            model.zero_grad(set_to_none=True)
            backward(run, model, batch, size, system)
            yield
