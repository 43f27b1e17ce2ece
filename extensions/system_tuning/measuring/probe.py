"""Probe system configurations before a trial's first epoch, on a copy that is thrown away.

Theory of operation. A rounding knob changes the last bits, so in a bitwise trial it is fixed before
the first step. Its gain is measured on copies of the fresh model. A window is a few forward and
backward passes over the trial's own batches. Windows of the candidates, in turn, alternate with
windows of the default. The optimiser's step is left out, since it costs the same under all
configurations. The probe ends when it has used up its passes. The trial itself is not changed.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any, Protocol

import torch
from torch import Tensor

from ....profiling.knobs.knobs import SystemConfig
from ....tasks.contracts.rng import key
from ....tasks.process.energy import MIN_METERED
from ....tasks.process.failure import failure_of
from ....tasks.process.pipe import Window
from ....tasks.system.system import System
from ....tasks.training.backward import backward
from ....tasks.training.data import length, read
from ....tasks.training.seeding import seed_torch
from ....tasks.training.training import Training
from .windows import relative

#: Passes of a window: first those that are not timed, then those that are.
WARM_UP, COUNTED = 1, 3
#: The most windows of each candidate. If they do not decide, another trial measures further.
ROUNDS = 4


class Watch(Protocol):
    """An object to which a probe reports its progress."""

    def check(self) -> None:
        """Note that a pass follows. May raise an exception to abandon the probe."""

    def probing(self, config: SystemConfig) -> None:
        """Note that ``config`` is tried from now on, or none if it is ()."""


Failed = list[tuple[SystemConfig, str]]


def probe(
    run: Training,
    tried: Sequence[SystemConfig],
    passes: float,
    watch: Watch,
    *,
    energy: bool = False,
) -> tuple[list[Window], Failed]:
    """Return the windows of each candidate (see ``windows.results``), and failures' reasons.

    No window is started that might exceed ``passes`` in total. If ``passes`` is not enough for one
    window of a candidate and two of the default, nothing is measured. If ``energy`` is True,
    windows are long enough to measure their joules.
    """
    counted_at = time.perf_counter()
    window = WARM_UP + COUNTED
    if passes < 3 * window:
        return [], []
    copies = Copies(run, watch.check, MIN_METERED if energy else 0.0)
    windows: list[Window] = []
    failed: Failed = []
    try:
        before = copies.window(())
        window = copies.passes  # more passes if joules are measured
        for config in tuple(tried) * ROUNDS:
            if copies.passes + 2 * window > passes:
                break
            if any(config == bad for bad, _ in failed):
                continue
            watch.probing(config)
            try:
                current = copies.window(config)
            except Exception as error:  # anything the user's code may raise
                failed.append((config, why(error)))
                copies.drop(config)
                continue
            finally:
                watch.probing(())
            after = copies.window(())
            ratio = current.seconds / ((before.seconds + after.seconds) / 2)
            joules = relative(current.joules, before.joules, after.joules)
            ended_at = time.perf_counter()
            windows.append((config, ratio, ended_at - counted_at, joules))
            before, counted_at = after, ended_at
    finally:
        run.system.enter()
    return windows, failed


def why(error: Exception) -> str:
    """Return the reason why a configuration cannot be run, on one line."""
    failure = failure_of(error)
    return f"{failure.kind}: {str(failure).partition(chr(10))[0]}"


@dataclass(frozen=True, slots=True)
class Passes:
    """The typical seconds of one pass in a window, and its mean joules (None if unknown).

    ``loss`` is the loss of the first pass.
    """

    seconds: float
    joules: float | None
    loss: float


class Copies:
    """Copies of the model, one for each configuration, made on first use. Counts the passes."""

    def __init__(
        self, run: Training, check: Callable[[], None], least: float, *, warmed: bool = True
    ) -> None:
        """Prepare probes of ``run``. ``least`` is the length of the shortest window, in seconds.

        If ``warmed`` is True, each window starts with passes that are not counted, and the result
        of the window is the median of its other passes. If ``warmed`` is False, only the first
        window of a copy starts with uncounted passes, and the result is the mean of all counted
        passes, because some of these may stall.
        """
        self._run = run
        self._check = check
        self.passes = 0
        #: The shortest window, in seconds.
        self.least = least
        self._warmed = warmed
        #: The least number of counted passes in a window.
        self.counted = COUNTED
        self._models: dict[SystemConfig, torch.nn.Module] = {}
        generator = torch.Generator().manual_seed(key("probe", run.seed, run.number))
        order = torch.randperm(length(run.data.train), generator=generator)
        self._parts = torch.split(order, run.batch_size)

    def window(self, config: SystemConfig) -> Passes:
        """Run and time a few passes under ``config``."""
        try:
            return self._window(config)
        except Exception as error:
            if len(self._models) < 2 or failure_of(error).kind != "memory":
                raise
        self._models.clear()  # the other copies may take the memory
        return self._window(config)

    def _window(self, config: SystemConfig) -> Passes:
        run, new = self._run, config not in self._models
        passes = self._ready(config)
        losses: list[Tensor] = []
        for _ in range(WARM_UP if new or self._warmed else 0):
            self._timed(passes, losses)
        times: list[float] = []
        begin = run.metering.now()
        while len(times) < self.counted or sum(times) < self.least:
            times.append(self._timed(passes, losses))
        joules = run.metering.since(begin) if sum(times) >= MIN_METERED else None
        per_pass = None if joules is None else joules / len(times)
        typical = median if self._warmed else fmean
        return Passes(typical(times), per_pass, float(losses[0]))

    def _ready(self, config: SystemConfig) -> Iterator[Tensor]:
        """Apply ``config`` and return an iterator over passes under it."""
        run, system = self._run, System(config)
        system.enter()
        if config not in self._models:
            self._models[config] = copy.deepcopy(run.model)
            system.shape(self._models[config], run.shards)
        return self._passes(self._models[config].train(), system)

    def _timed(self, passes: Iterator[Tensor], losses: list[Tensor]) -> float:
        """Run the next pass and add its loss to ``losses``; return its seconds."""
        self._check()
        self.passes += 1
        began = time.perf_counter()
        losses.append(next(passes))
        if self._run.device.type == "cuda":
            torch.cuda.synchronize(self._run.device)
        return time.perf_counter() - began

    def is_new(self, config: SystemConfig) -> bool:
        """Return True if there is no copy for ``config`` yet."""
        return config not in self._models

    def drop(self, config: SystemConfig) -> None:
        """Drop a copy that is not needed any more."""
        self._models.pop(config, None)

    def _passes(self, model: torch.nn.Module, system: System) -> Iterator[Tensor]:
        run = self._run
        seed_torch(run.device, key("probe", run.seed, run.number))  # so that losses can be compared
        parts = (self._parts * (1 + WARM_UP + COUNTED))[: WARM_UP + COUNTED]
        while True:
            batches: Iterator[tuple[Any, int]] = read(
                run.data.train,
                parts,
                range(len(parts)),
                run.device,
                channels_last=system.channels_last,
            )
            for batch, size in batches:
                model.zero_grad(set_to_none=True)
                yield backward(run, model, batch, size, system)
