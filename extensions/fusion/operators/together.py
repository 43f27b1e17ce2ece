"""Operators whose kernels compute all trials at once, where that has each trial's bits.

Theory of operation. A vectorised kernel computes whole vectors in one way and what is left over at
the end in another. Alone, a trial's last elements are left over; in a stack only the last trial's.
Where a trial's elements fill whole vectors nothing is left over, and where they do not the
operator is looped. A GPU computes each element by itself. Over the last dimension the kernel goes
row by row, whatever their number.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from .loop import looped

#: More than any kernel takes in one go: four vectors of 512 bits.
_ELEMENTS = 64


def elementwise(func: Any) -> Any:
    """The rule of an elementwise operator of one tensor."""

    def rule(count: int, x: Any, *args: Any, **named: Any) -> Any:
        others = (*args, *named.values())
        plain = isinstance(x, Tensor) and not any(isinstance(each, Tensor) for each in others)
        if plain and x.is_contiguous() and (x.is_cuda or x[0].numel() % _ELEMENTS == 0):
            return func(x, *args, **named)
        return looped(func, count, (x, *args), named)

    return rule


def last_dimension(func: Any) -> Any:
    """The rule of an operator along a dimension, which is computed so if it is the last."""

    def rule(count: int, x: Tensor, dim: Any = None, **named: Any) -> Any:
        plain = all(named[name] is None or name == "_stacklevel" for name in named)
        if plain and dim in (-1, x.dim() - 2) and x.dim() > 1 and x.is_contiguous():
            return func(x, -1)
        return looped(func, count, (x, dim), named)

    return rule
