"""A trial's memory as it runs: the storages of an epoch's first steps, or the GPU's own count.

Following two steps and two batches of the validation data changes no bit of them and costs some
10 us an operator. On a GPU the allocator counts for itself, over the whole epoch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.utils._pytree import tree_leaves

from ...profiling.memory.allocator import peak_bytes
from ...profiling.memory.footprint import Footprint
from ..system.storages import StorageTracker, persistent
from .fake_trial import held

if TYPE_CHECKING:
    from ..training.training import Training


class Measuring:
    """Measures the next epoch of ``run``."""

    def __init__(self, run: Training) -> None:
        self._run = run
        if run.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(run.device)
            self._others = torch.cuda.memory_allocated(run.device) - self._own()
        else:
            run.storages = tracker = StorageTracker()
            tracker.hold(held(run.model))
            tracker.hold(p.grad for p in run.model.parameters() if p.grad is not None)
            state = tree_leaves(list(run.optimizer.state.values()))
            tracker.hold(each for each in state if isinstance(each, torch.Tensor))

    def end(self) -> Footprint:
        """What the trial needed. Called once the epoch has ended, also where it failed."""
        run, own = self._run, self._own()
        tracker, run.storages = run.storages, None
        if tracker is None:  # on a GPU; other trials may be in memory there
            peak = torch.cuda.max_memory_allocated(run.device) - self._others
            return Footprint(own, peak - own, torch.cuda.max_memory_reserved(run.device))
        peak = peak_bytes(tracker.changes)
        return Footprint(own, peak - own, peak)

    def _own(self) -> int:
        return persistent(self._run.model, self._run.optimizer)
