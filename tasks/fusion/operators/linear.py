"""``F.linear`` for stacks of trials: a batched product, oriented as for a trial alone."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from ..frozen import NotFused

#: Below so many multiplications torch's batched product is a plain loop with bits of its own.
_SMALL_PRODUCT = 400


def linear(count: int, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:  # noqa: A002
    """``F.linear``: a trial alone multiplies a matrix of examples, whatever their dimensions."""
    if input.dim() < 3 or weight.dim() < 3:
        raise NotFused("a linear layer is given a single example")
    examples = input.reshape(count, -1, input.shape[-1])
    made: Tensor = _Linear.apply(examples, weight, bias)  # type: ignore[no-untyped-call]
    return made.view(*input.shape[:-1], weight.shape[1])


class _Linear(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.biased = bias is not None
        if bias is None or _is_small(x, weight.shape[1]):
            made = _bmm(x, weight.transpose(1, 2), bias)
        else:
            made = torch.baddbmm(bias.unsqueeze(1), x, weight.transpose(1, 2))
        return made

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, weight = ctx.saved_tensors
        by_x = _bmm(grad, weight) if ctx.needs_input_grad[0] else None
        by_weight = _bmm(grad.transpose(1, 2), x) if ctx.needs_input_grad[1] else None
        by_bias = grad.sum(1) if ctx.biased and ctx.needs_input_grad[2] else None
        return by_x, by_weight, by_bias


def _bmm(a: Tensor, b: Tensor, bias: Tensor | None = None) -> Tensor:
    if not _is_small(a, b.shape[2]):
        return torch.bmm(a, b)
    if bias is None:
        return torch.stack([one.mm(other) for one, other in zip(a, b, strict=True)])
    each = zip(bias, a, b, strict=True)
    return torch.stack([torch.addmm(add, one, other) for add, one, other in each])


def _is_small(a: Tensor, columns: int) -> bool:
    return a.shape[1] * a.shape[2] * columns < _SMALL_PRODUCT
