"""Cross entropy for stacks of trials."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name for it
from torch import Tensor
from torch.autograd import Function

from .loop import looped
from .not_fused import NotFused
from .vectorised import last_dimension

#: torch's default for ``ignore_index``.
_IGNORED = -100
#: The operator that returns the mean loss of the examples that are not ignored, and their number.
#: ``_MEAN`` is torch's code for the mean.
_nll = torch.ops.aten.nll_loss_forward.default
_MEAN = 1
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
_NAMES = ("input", "target", *_DEFAULTS)


def cross_entropy(count: int, *args: Any, **named: Any) -> Tensor:
    """Return ``F.cross_entropy`` of all trials."""
    arguments = dict(zip(_NAMES, args, strict=False)) | named
    if arguments.get("label_smoothing") and arguments.get("weight") is not None:
        # While a dispatch mode sees the operators, torch computes it in another way.
        raise NotFused("its cross entropy has both label smoothing and weights of classes")
    if _is_plain(args, named):
        scores, target = args
        return nll_of_all(count, _log_softmax(count, scores, -1), target)
    losses: Tensor = looped(F.cross_entropy, count, args, named)
    return losses


def nll_loss(count: int, *args: Any, **named: Any) -> Tensor:
    """Return ``F.nll_loss`` of all trials."""
    if _is_plain(args, named) and args[0].dtype != torch.bfloat16:  # else autocast may widen it
        return nll_of_all(count, *args)
    losses: Tensor = looped(F.nll_loss, count, args, named)
    return losses


def _is_plain(args: Sequence[Any], named: dict[str, Any]) -> bool:
    """Return True if the loss is an unweighted mean over examples with one class each."""
    if len(args) != 2 or any(isinstance(value, Tensor) for value in named.values()):
        return False
    scores, target = args
    has_defaults = all(
        name in _DEFAULTS and value == _DEFAULTS[name] for name, value in named.items()
    )
    return has_defaults and scores.dim() == 3 and target.dim() == 2 and target.dtype == torch.int64


def nll_of_all(count: int, log_probabilities: Tensor, target: Tensor) -> Tensor:
    """Return the mean negative log likelihoods (K,).

    ``log_probabilities`` are (K, B, classes), and ``target`` (K, B) has the classes.
    """
    if log_probabilities.is_cuda:
        losses: Tensor = looped(F.nll_loss, count, (log_probabilities, target), {})
        return losses
    mean: Tensor = _MeanNll.apply(log_probabilities, target)  # type: ignore[no-untyped-call]
    return mean


class _MeanNll(Function):
    @staticmethod
    def forward(ctx: Any, log_probabilities: Tensor, target: Tensor) -> Tensor:
        ctx.shape = log_probabilities.shape
        # Let torch sum each trial's batch: no sum over a stack has the same order.
        each = zip(log_probabilities.unbind(0), target.unbind(0), strict=True)
        results = [_nll(scores, its, None, _MEAN, _IGNORED) for scores, its in each]
        ctx.save_for_backward(target, torch.stack([weight for _, weight in results]))
        return torch.stack([loss for loss, _ in results])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        target, weights = ctx.saved_tensors
        ignored = target == _IGNORED
        each = (grad / -weights).unsqueeze(1).expand(target.shape).masked_fill(ignored, 0.0)
        gradient = torch.zeros(ctx.shape, dtype=grad.dtype)
        at = target.masked_fill(ignored, 0)
        return gradient.scatter_(2, at.unsqueeze(-1), each.unsqueeze(-1)), None
