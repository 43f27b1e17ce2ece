"""Computes operators for stacks of trials by a loop over trials, with the kernels for one trial.

Theory of operation. Forward and backward run on each trial's own tensors. Only whole results are
stacked, each in the memory order that it has alone. So the operators that follow see each trial as
if it were alone. Each argument is a separate edge in the graph of gradients, as for a trial alone,
so that gradients of one tensor are added in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch.autograd import Function

from .not_fused import NotFused

#: A function from a trial's index to the context in which the trial draws random numbers.
Lent = Callable[[int], AbstractContextManager[None]]

#: Alignment of torch's allocations (bytes). Products of unaligned tensors have other bits.
_ALIGNED = 64


class Loop:
    """A rule that calls an operator of torch once for each trial, in a loop."""

    def __init__(self, func: Any, lent: Lent) -> None:
        self._func = func
        self._lent = lent

    def __call__(self, count: int, *args: Any, **named: Any) -> Any:
        if self._draws(named):
            return looped(self._func, count, args, named, self._lent)
        return looped(self._func, count, args, named)

    def _draws(self, named: dict[str, Any]) -> bool:
        if self._func is F.multi_head_attention_forward:
            return bool(named.get("training", True))
        return bool(named.get("dropout_p"))


def looped(
    func: Any,
    count: int,
    args: Sequence[Any],
    named: dict[str, Any],
    lent: Lent = lambda _: nullcontext(),
) -> Any:
    """Return ``func`` of all trials, called for each trial ``k`` in the context ``lent(k)``."""
    # Equal arguments must stay one object: torch computes self-attention in another way.
    stacks = _Stacks(shared=func is F.multi_head_attention_forward)
    arguments, by_name = stacks.indexed(tuple(args)), stacks.indexed(dict(named))
    kinds: list[type] = []

    def work(k: int, own: Sequence[Tensor]) -> list[Any]:
        with lent(k):
            output = func(*_filled(arguments, own, k), **_filled(by_name, own, k))
        kinds.append(type(output))
        return list(output) if isinstance(output, tuple | list) else [output]

    tensors = stacks.found
    if torch.is_grad_enabled() and any(each.requires_grad for each in tensors):
        parts = _ByRow.apply(work, count, *tensors)  # type: ignore[no-untyped-call]
    else:
        rows = [rows_of(each) for each in tensors]
        each = [work(k, [row[k] for row in rows]) for k in range(count)]
        parts = [_whole(part) for part in zip(*each, strict=True)]
    if issubclass(kinds[0], tuple | list):
        return kinds[0](parts)
    return parts[0]


def is_aligned(stack: Tensor) -> bool:
    """Return True if each trial's tensor is aligned in memory as it is alone."""
    return len(stack) == 1 or stack.stride(0) * stack.element_size() % _ALIGNED == 0


def rows_of(stack: Tensor) -> list[Tensor]:
    """Return each trial's tensor, aligned as it is alone."""
    return list(_realigned(stack).unbind(0))


@torch.no_grad()
def _realigned(stack: Tensor) -> Tensor:
    """Return ``stack``, or an aligned copy of it if a trial's tensor is not aligned in memory.

    A trial's tensor has the same strides in the copy. The first trial's tensor is always aligned
    as it is alone, since the stack begins with it.
    """
    if is_aligned(stack) or not stack.numel():
        return stack
    size, (apart, *strides) = stack.shape, stack.stride()
    # Copy broadcast dimensions only once.
    once = [n if step else 1 for n, step in zip(size[1:], strides, strict=True)]
    begin = stack.data_ptr() % _ALIGNED // stack.element_size()
    end = begin + 1 + sum((n - 1) * step for n, step in zip(size[1:], strides, strict=True))
    unit = _ALIGNED // stack.element_size()
    wide = -(-end // unit) * unit
    memory = stack.new_empty(len(stack) * wide)
    rows = stack.as_strided((len(stack), *once), (apart, *strides))
    memory.as_strided((len(stack), *once), (wide, *strides), begin).copy_(rows)
    return memory.as_strided(size, (wide, *strides), begin)


class ByRow(tuple[float, ...]):
    """A number with one value for each trial."""

    __slots__ = ()


class _Index(int):
    """The position of a tensor in ``_Stacks.found``."""


class _Stacks:
    """Finds the stacks among arguments."""

    def __init__(self, *, shared: bool) -> None:
        self.found: list[Tensor] = []
        self._shared = shared
        self._known: dict[int, _Index] = {}

    def indexed(self, value: Any) -> Any:
        """Return ``value`` with an index in place of each tensor."""
        if isinstance(value, Tensor):
            if self._shared and id(value) in self._known:
                return self._known[id(value)]
            index = self._known[id(value)] = _Index(len(self.found))
            self.found.append(value)
            return index
        if type(value) in (tuple, list):
            return type(value)(self.indexed(each) for each in value)
        if type(value) is dict:
            return {name: self.indexed(each) for name, each in value.items()}
        return value


def _filled(value: Any, own: Sequence[Tensor], k: int) -> Any:
    if isinstance(value, _Index):
        return own[value]
    if isinstance(value, ByRow):
        return value[k]
    if type(value) in (tuple, list):
        return type(value)(_filled(each, own, k) for each in value)
    if type(value) is dict:
        return {name: _filled(each, own, k) for name, each in value.items()}
    return value


class _ByRow(Function):
    @staticmethod
    def forward(
        ctx: Any, work: Callable[[int, Sequence[Tensor]], list[Any]], count: int, *stacks: Tensor
    ) -> Any:
        ctx.set_materialize_grads(False)
        ctx.needed = [i for i in range(len(stacks)) if ctx.needs_input_grad[2 + i]]
        rows = [rows_of(each) for each in stacks]
        for i in ctx.needed:
            rows[i] = [each.detach().requires_grad_() for each in rows[i]]
        with torch.enable_grad():
            outputs = [work(k, [row[k] for row in rows]) for k in range(count)]
        ctx.inputs = [rows[i] for i in ctx.needed]
        ctx.made = list(zip(*outputs, strict=True))
        whole = tuple(_whole([_detached(each) for each in part]) for part in ctx.made)
        pairs = zip(ctx.made, whole, strict=True)
        constant = [w for part, w in pairs if isinstance(w, Tensor) and not part[0].requires_grad]
        ctx.mark_non_differentiable(*constant)
        return whole

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        outputs: list[Tensor] = []
        output_grads: list[Tensor] = []
        for part, grad in zip(ctx.made, grads, strict=True):
            if grad is not None:
                outputs.extend(part)
                output_grads.extend(rows_of(grad))
        input_grads: list[Any] = [None] * len(ctx.needs_input_grad)
        if outputs:
            inputs = [each for row in ctx.inputs for each in row]
            flat = torch.autograd.grad(outputs, inputs, output_grads, allow_unused=True)
            count = len(ctx.inputs[0])
            for at, i in enumerate(ctx.needed):
                input_grads[2 + i] = _whole(flat[at * count : (at + 1) * count])
        return tuple(input_grads)


def _detached(value: Any) -> Any:
    return value.detach() if isinstance(value, Tensor) else value


def _whole(part: Sequence[Any]) -> Any:
    """Return the tensors as a stack, each in the memory order that it has alone.

    Returns None if they are None.
    """
    first = part[0]
    if first is None:
        return None
    if not isinstance(first, Tensor):
        raise NotFused(f"an operator gives a {type(first).__name__} for each trial")
    if first.is_contiguous():
        return torch.stack(list(part))
    # A dimension that is broadcast alone is broadcast in the stack, too.
    wide = [d for d in range(first.dim()) if first.stride(d) == 0 and first.shape[d] > 1]
    for dim in wide:
        part = [each.narrow(dim, 0, 1) for each in part]
    order = sorted(range(first.dim()), key=first.stride, reverse=True)
    back = [0, *(1 + order.index(dim) for dim in range(len(order)))]
    stack = torch.stack([each.permute(order) for each in part]).permute(back)
    return stack.expand(len(part), *first.shape) if wide else stack
