"""Compute a batch's gradients: in one pass, or in micro-batches, which take less memory.

If the loss is a mean over examples, the weighted means of the parts have the same gradient as the
whole, except for rounding. For a loss that compares the examples of a batch the gradient differs,
and layers that draw random numbers draw for each part. So ``micro_batch`` is no *rounding* knob
(``profiling.knobs.knobs``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ...base.errors import TrialFailed
from ..gangs.tree_sum import split

if TYPE_CHECKING:
    from torch import Tensor, nn

    from ..system.system import System
    from .training import Training


def backward(run: Training, model: nn.Module, batch: Any, size: int, system: System) -> Tensor:
    """Add the gradients of the mean loss over a batch of ``size`` examples; return the loss.

    The loss is detached. ``model`` is the trial's or a copy of it. ``system`` is the configuration
    in force.
    """
    if system.micro_batches == 1:
        with system.computing(run.device):
            loss = run.code.loss(model, batch)
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        return loss.detach()
    total = torch.zeros((), device=run.device)
    for part in split(size, min(size, system.micro_batches)):
        with system.computing(run.device):
            loss = run.code.loss(model, _piece(batch, part, size)) * (len(part) / size)
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        total += loss.detach()
    return total


def _piece(batch: Any, part: range, size: int) -> Any:
    if isinstance(batch, torch.Tensor) and batch.dim() and len(batch) == size:
        return batch[part.start : part.stop]
    if isinstance(batch, dict):
        return {name: _piece(item, part, size) for name, item in batch.items()}
    if isinstance(batch, (list, tuple)):
        if len(batch) == size and not any(isinstance(item, torch.Tensor) for item in batch):
            return batch[part.start : part.stop]
        return type(batch)(_piece(item, part, size) for item in batch)
    raise TrialFailed("system", f"a batch with a {type(batch).__name__} in it cannot be cut")
