"""Cross entropy for stacks of trials."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name for it
from torch import Tensor
from torch.autograd import Function

from .loop import looped
from .together import last_dimension

#: torch's default for ``ignore_index``.
_IGNORED = -100
_log_softmax = last_dimension(F.log_softmax)
#: The defaults of ``F.cross_entropy`` and ``F.nll_loss``.
_DEFAULTS: dict[str, Any] = {
    "weight": None,
    "size_average": None,
    "ignore_index": _IGNORED,
    "reduce": None,
    "reduction": "mean",
    "label_smoothing": 0.0,
}


def cross_entropy(count: int, *args: Any, **named: Any) -> Tensor:
    """``F.cross_entropy``."""
    if _is_plain(args, named):
        scores, target = args
        return nll_of_all(count, _log_softmax(count, scores, -1), target)
    made: Tensor = looped(F.cross_entropy, count, args, named)
    return made


def nll_loss(count: int, *args: Any, **named: Any) -> Tensor:
    """``F.nll_loss``."""
    if _is_plain(args, named):
        return nll_of_all(count, *args)
    made: Tensor = looped(F.nll_loss, count, args, named)
    return made


def _is_plain(args: Sequence[Any], named: dict[str, Any]) -> bool:
    """Whether it is a mean over examples with a class each, all with equal weight."""
    if len(args) != 2 or any(isinstance(value, Tensor) for value in named.values()):
        return False
    scores, target = args
    known = all(name in _DEFAULTS and value == _DEFAULTS[name] for name, value in named.items())
    return known and scores.dim() == 3 and target.dim() == 2 and target.dtype == torch.int64


def nll_of_all(count: int, log_probabilities: Tensor, target: Tensor) -> Tensor:
    """The mean negative log likelihood (K,) from (K, B, classes) and (K, B)."""
    if log_probabilities.is_cuda or bool((target == _IGNORED).any()):
        made: Tensor = looped(F.nll_loss, count, (log_probabilities, target), {})
        return made
    mean: Tensor = _MeanNll.apply(log_probabilities, target)  # type: ignore[no-untyped-call]
    return mean


class _MeanNll(Function):
    @staticmethod
    def forward(ctx: Any, log_probabilities: Tensor, target: Tensor) -> Tensor:
        ctx.shape = log_probabilities.shape
        ctx.save_for_backward(target)
        # The sum of a trial's batch is torch's own: it is ordered as no sum over a stack is.
        each = zip(log_probabilities.unbind(0), target.unbind(0), strict=True)
        return torch.stack([F.nll_loss(one, its) for one, its in each])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        [target] = ctx.saved_tensors
        each = (grad / -target.shape[1]).view(-1, 1, 1).expand(*target.shape, 1)
        made = torch.zeros(ctx.shape, dtype=grad.dtype)
        return made.scatter_(2, target.unsqueeze(-1), each), None
