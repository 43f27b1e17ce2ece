"""Measures a running trial's memory: in an epoch's first steps, or by the GPU's own count.

Theory of operation. On a CPU torch's profiler records every allocation of two steps, and of two
batches of the validation data, including those inside kernels. The profiler changes no bit, unlike
a dispatch mode, under which some operators compute in another way. The memory in use before is
known: model, buffers and optimiser state. The profiler would not see the last epoch's gradients
freed, so they are dropped first, as the first step would do. On a GPU the allocator itself counts,
over the whole epoch.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch.autograd.profiler import profile

from ....base.footprint import Footprint
from ....tasks.system.tensor_bytes import held
from .allocator import peak_bytes
from .scratch import allocations
from .storages import persistent

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.optim import Optimizer

#: Number of steps, and of batches of the validation data, that are recorded.
RECORDED = 2


class MemoryMeter:
    """Measures the next epoch of a trial. Call ``close`` whether the epoch succeeds or not."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        device: torch.device,
        beside: Sequence[Tensor] = (),
    ) -> None:
        """Prepare to measure. ``beside`` has the trial's tensors outside of its model."""
        self._model, self._optimizer, self._device = model, optimizer, device
        self._beside = beside
        #: Seconds spent on recording, without the steps themselves.
        self.seconds = 0.0
        self._recording: profile | None = None
        self._refused = False
        self._peak = self._base = self._others = 0
        optimizer.zero_grad(set_to_none=True)
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
            self._others = torch.cuda.memory_allocated(device) - self._own()
        else:
            self._record()

    @property
    def recording(self) -> bool:
        """True while the process's allocations are counted for the trial."""
        return self._recording is not None or self._device.type == "cuda"

    @contextmanager
    def around(self, i: int) -> Iterator[None]:
        """Yield around step or batch ``i``, counted from 0; recording ends after the second one."""
        yield
        if i == RECORDED - 1:
            self.close()

    def evaluating(self) -> None:
        """Note that an evaluation begins, and record its first batches too."""
        self.close()
        if self._device.type == "cpu":
            self._record()

    def close(self) -> None:
        """Stop recording."""
        recording, self._recording = self._recording, None
        if recording is None:
            return
        began = time.monotonic()
        recording.__exit__(None, None, None)  # type: ignore[no-untyped-call]  # torch's own
        sizes = sorted(allocations(recording))
        self._refused |= not sizes  # the user's code has started a profiler, which has ended ours
        self._peak = max(self._peak, self._base + peak_bytes(sizes))
        self.seconds += time.monotonic() - began

    def footprint(self) -> Footprint | None:
        """Return the trial's need in the epoch that has ended; None if it could not be recorded."""
        self.close()
        if self._refused:
            return None
        own = self._own()
        if self._device.type == "cpu":
            return Footprint(own, self._peak - own, self._peak)
        # The reserved memory also serves other trials in this process, so it is not used.
        peak = torch.cuda.max_memory_allocated(self._device) - self._others
        return Footprint(own, peak - own, peak)

    def _own(self) -> int:
        return persistent(self._model, self._optimizer, *self._beside)

    def _record(self) -> None:
        began = time.monotonic()
        gradients = (each.grad for each in self._model.parameters() if each.grad is not None)
        tensors = (*self._beside, *held(self._model), *gradients)
        self._base = persistent(self._model, self._optimizer, *tensors)
        if torch._C._autograd._profiler_enabled():  # by the user's code: ours would end it
            self._refused = True
        else:
            self._recording = profile(profile_memory=True)
            self._recording.__enter__()  # type: ignore[no-untyped-call]  # torch's own
        self.seconds += time.monotonic() - began
