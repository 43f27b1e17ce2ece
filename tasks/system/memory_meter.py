"""Measures a trial's memory as it runs: in an epoch's first steps, or by the GPU's own count.

Theory of operation. On a CPU torch's profiler records every allocation of two steps, and of two
batches of the validation data, those inside kernels included. It changes no bit: unlike a dispatch
mode, under which some operators take other ways. What was there before is known: model, buffers and
optimiser state. Gradients of the epoch before would be freed unseen, so they are dropped first, as
the first step does. On a GPU the allocator counts for itself, over the whole epoch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch.autograd.profiler import profile

from ...profiling.memory.footprint import Footprint
from .scratch import allocations
from .storages import held, persistent

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer

#: How many steps, and batches of the validation data, are recorded.
RECORDED = 2


class MemoryMeter:
    """Measures the next epoch of a trial. ``close`` it, whether the epoch succeeds or not."""

    def __init__(self, model: nn.Module, optimizer: Optimizer, device: torch.device) -> None:
        self._model, self._optimizer, self._device = model, optimizer, device
        self._recording: profile | None = None
        self._peak = self._base = self._others = 0
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
            self._others = torch.cuda.memory_allocated(device) - persistent(model, optimizer)
        else:
            optimizer.zero_grad(set_to_none=True)
            self._record()

    @contextmanager
    def around(self, i: int) -> Iterator[None]:
        """The context of step or batch ``i``, from 0. Recording ends after the second."""
        yield
        if i == RECORDED - 1:
            self.close()

    def evaluating(self) -> None:
        """An evaluation begins: its first batches are recorded, too."""
        self.close()
        if self._device.type == "cpu":
            self._record()

    def close(self) -> None:
        """Record no more."""
        recording, self._recording = self._recording, None
        if recording is None:
            return
        recording.__exit__(None, None, None)  # type: ignore[no-untyped-call]  # torch's own
        live = self._base
        for _, size in sorted(allocations(recording)):
            live += size
            self._peak = max(self._peak, live)

    def footprint(self) -> Footprint:
        """What the trial needed in the epoch that has ended."""
        self.close()
        own = persistent(self._model, self._optimizer)
        if self._device.type == "cpu":
            return Footprint(own, self._peak - own, self._peak)
        # Other trials may be in memory there.
        peak = torch.cuda.max_memory_allocated(self._device) - self._others
        return Footprint(own, peak - own, torch.cuda.max_memory_reserved(self._device))

    def _record(self) -> None:
        gradients = (each.grad for each in self._model.parameters() if each.grad is not None)
        self._base = persistent(self._model, self._optimizer, *held(self._model), *gradients)
        recording = profile(profile_memory=True)
        recording.__enter__()  # type: ignore[no-untyped-call]  # torch's own
        self._recording = recording
