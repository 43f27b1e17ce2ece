"""Operators whose kernels compute all trials at once if that keeps each trial's bits.

Theory of operation. On a CPU a vectorised kernel computes whole vectors in one way, and the
remaining elements at the end in another. Alone, each trial has such a remainder; in a stack only
the last trial has. If a trial's elements fill whole vectors, there is no remainder; otherwise the
operator is looped. A GPU computes each element separately. Over the last dimension, a kernel goes
row by row, however many rows there are.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ....tasks.system.tensor_bytes import is_channels_last
from .loop import looped
from .not_fused import NotFused

#: An upper bound of the bytes that a kernel takes in one go: four vectors of 512 bits.
_VECTORS = 256


def fills_vectors(one: Tensor) -> bool:
    """Return True if ``one``, a trial's tensor, has a multiple of ``_VECTORS`` bytes."""
    return one.nbytes % _VECTORS == 0


def elementwise(func: Any) -> Any:
    """Return the rule for an elementwise operator on one tensor."""

    def rule(count: int, x: Any, *args: Any, **named: Any) -> Any:
        arguments = (*args, *named.values())
        plain = isinstance(x, Tensor) and not any(isinstance(each, Tensor) for each in arguments)
        if plain and x.is_contiguous() and (x.is_cuda or fills_vectors(x[0])):
            return func(x, *args, **named)
        return looped(func, count, (x, *args), named)

    return rule


def narrow(func: Any, *, overwrites: bool) -> Any:
    """Return the rule for an exact operator on 16-bit floats.

    Even there the bits of a NaN depend on whether a whole vector is computed at once.
    """

    def rule(count: int, *args: Any, **named: Any) -> Any:
        tensors = [each for each in (*args, *named.values()) if isinstance(each, Tensor)]
        first = tensors[0][0]
        alike = all(each.shape[1:] == first.shape for each in tensors)
        order = {each[0].stride() for each in tensors}
        dense = first.is_contiguous() or is_channels_last(first)
        if alike and dense and len(order) == 1 and (first.is_cuda or fills_vectors(first)):
            return func(*args, **named)
        if overwrites:
            raise NotFused(f"{func.__name__} overwrites numbers of bfloat16 that fill no vectors")
        return looped(func, count, args, named)

    return rule


def last_dimension(func: Any) -> Any:
    """Return the rule for an operator along a dimension, fused only if that is the last one."""

    def rule(count: int, x: Tensor, dim: Any = None, **named: Any) -> Any:
        plain = all(named[name] is None or name == "_stacklevel" for name in named)
        if plain and dim in (-1, x.dim() - 2) and x.dim() > 1 and x.is_contiguous():
            return func(x, -1)
        return looped(func, count, (x, dim), named)

    return rule
