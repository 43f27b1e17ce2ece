"""``F.linear`` for stacks of trials: batched products, oriented as for a trial alone."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name for it
from torch import Tensor
from torch.autograd import Function

from .batched import batched
from .loop import is_aligned, looped, rows_of
from .not_fused import NotFused

#: Number of multiplications below which torch computes a batched product by a plain loop, with
#: other bits.
_SMALL_PRODUCT = 400


def linear(count: int, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:  # noqa: A002
    """Return ``F.linear`` of all trials; leading dimensions of a trial's input count as rows."""
    if input.dim() < 3 or weight.dim() < 3:
        raise NotFused("a linear layer is given a single example")
    autocast = torch.is_autocast_enabled(input.device.type)  # whose products have bits of their own
    if autocast or not (input.is_contiguous() or input[0].is_contiguous()):
        # Alone, the gradients are computed in another orientation, or the bias is added later.
        made_alone: Tensor = looped(F.linear, count, (input, weight, bias), {})
        return made_alone
    if input.dim() == 3:
        output: Tensor = _Linear.apply(input, weight, bias)  # type: ignore[no-untyped-call]
        return output
    examples = input.reshape(count, -1, input.shape[-1])
    output = _Linear.apply(examples, weight, bias)  # type: ignore[no-untyped-call]
    return output.view(*input.shape[:-1], weight.shape[1])


class _Linear(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.biased = bias is not None
        return _product(x, weight.transpose(1, 2), bias)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, weight = ctx.saved_tensors
        by_x = _product(grad, weight) if ctx.needs_input_grad[0] else None
        by_weight = _product(grad.transpose(1, 2), x) if ctx.needs_input_grad[1] else None
        by_bias = _sum(grad) if ctx.biased and ctx.needs_input_grad[2] else None
        return by_x, by_weight, by_bias


def _product(a: Tensor, b: Tensor, bias: Tensor | None = None) -> Tensor:
    if a.is_cuda:
        stacks = (a, b) if bias is None else (a, b, bias)
        return batched("product", stacks, lambda: _at_once(a, b, bias), lambda: _each(a, b, bias))
    small = a.shape[1] * a.shape[2] * b.shape[2] < _SMALL_PRODUCT
    if small or not (is_aligned(a) and is_aligned(b)):
        return _each(a, b, bias)
    return _at_once(a, b, bias)


def _at_once(a: Tensor, b: Tensor, bias: Tensor | None) -> Tensor:
    return torch.bmm(a, b) if bias is None else torch.baddbmm(bias.unsqueeze(1), a, b)


def _each(a: Tensor, b: Tensor, bias: Tensor | None) -> Tensor:
    left, right = rows_of(a), rows_of(b)
    if bias is None:
        return torch.stack([one.mm(other) for one, other in zip(left, right, strict=True)])
    each = zip(rows_of(bias), left, right, strict=True)
    return torch.stack([torch.addmm(add, one, other) for add, one, other in each])


def _sum(grad: Tensor) -> Tensor:
    """Return the sum of ``grad`` over the examples (dimension 1), for each trial (dimension 0)."""
    if not grad.is_cuda:
        return grad.sum(1)
    return batched(
        "sum",
        (grad,),
        lambda: grad.sum(1),
        lambda: torch.stack([one.sum(0) for one in rows_of(grad)]),
    )
