"""The mean negative log likelihood of each trial's batch, summed as torch sums it for one trial."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

_MEAN = 1
#: torch's default for ``ignore_index``.
_IGNORED = -100


def mean_nll(log_probabilities: Tensor, target: Tensor) -> Tensor:
    """(K,) from (K, B, classes) and (K, B)."""
    made: Tensor = _MeanNll.apply(log_probabilities, target)
    return made


class _MeanNll(Function):
    @staticmethod
    def forward(ctx: Any, log_probabilities: Tensor, target: Tensor) -> Tensor:
        each = zip(log_probabilities.unbind(0), target.unbind(0), strict=True)
        kernel = torch.ops.aten.nll_loss_forward.default
        made = [kernel(one, labels, None, _MEAN, _IGNORED) for one, labels in each]
        ctx.shape = log_probabilities.shape
        ctx.save_for_backward(target, torch.stack([weight for _, weight in made]))
        return torch.stack([loss for loss, _ in made])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        target, weights = ctx.saved_tensors
        each = (-(grad / weights)).view(-1, 1, 1).expand(*target.shape, 1)
        index = target.unsqueeze(-1)
        if bool((weights < target.shape[1]).any()):
            each = each.where(index != _IGNORED, 0.0)
            index = index.clamp_min(0)
        made = torch.zeros(ctx.shape, dtype=grad.dtype).scatter_(2, index, each)
        return made, None
