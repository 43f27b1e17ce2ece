"""Calls a function once for all trials, like ``torch.func.vmap``, but lets rules see the stacks.

Theory of operation. Inside the call, a tensor has its shape for one trial, and torch computes for
all trials. torch's public functions to enter such a call (``vmap``) and to leave it
(``autograd.Function.vmap``) take most of the time of a small step, since they handle trees of
arguments, which do not occur here. So this module uses the few private functions beneath them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor
from torch._C import _functorch as internal

from .not_fused import NotFused


class AllRows:
    """Computes with all trials of a group at once."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._level = -1

    def call(
        self,
        function: Callable[[Sequence[Tensor], tuple[Tensor, ...]], Any],
        stacks: Sequence[Tensor],
        batch: tuple[Tensor, ...],
        *,
        common: bool,
    ) -> Any:
        """Return ``function(tensors, batch)``, a tensor or dict of tensors with a row per trial.

        If ``common``, the batch is the same for all trials; otherwise it has a row for each. An
        operator that draws random numbers raises an error unless it has a rule.
        """
        level = self._level = internal._vmap_increment_nesting(self.count, "error")
        try:
            tensors = [internal._add_batch_dim(each, 0, level) for each in stacks]
            examples = batch
            if not common:
                examples = tuple(internal._add_batch_dim(each, 0, level) for each in batch)
            outputs = function(tensors, examples)
            if isinstance(outputs, dict):
                return {name: self._stack_of(value) for name, value in outputs.items()}
            return self._stack_of(outputs)
        finally:
            self._level = -1
            internal._vmap_decrement_nesting()

    def _stack_of(self, value: Any) -> Tensor:
        if not isinstance(value, Tensor):
            raise NotFused(f"its code gives a {type(value).__name__} where a tensor is expected")
        stack: Tensor = internal._remove_batch_dim(value, self._level, self.count, 0)
        return stack

    def is_here(self) -> bool:
        """Return True if operators are called for all trials directly, not in a user's vmap."""
        return bool(internal.maybe_current_level() == self._level)

    def leave(self, rule: Callable[..., Any], args: Sequence[Any], named: dict[str, Any]) -> Any:
        """Return the result, a row for each trial, of ``rule`` on the stacks behind the tensors."""
        # Equal arguments must stay one object: torch computes self-attention in another way.
        by_id: dict[int, Tensor] = {}
        stacks = [self._behind(arg, by_id) for arg in args]
        by_name = {name: self._behind(arg, by_id) for name, arg in named.items()}
        outside = internal.pop_dynamic_layer_stack()
        try:
            outputs = rule(self.count, *stacks, **by_name)
        finally:
            internal.push_dynamic_layer_stack(outside)
        return self._wrapped(outputs)

    def differs(self, tensor: Tensor) -> bool:
        """Return True if a tensor has a row for each trial; False if all trials share it."""
        return bool(internal.is_batchedtensor(tensor))

    def _wrapped(self, output: Any) -> Any:
        if isinstance(output, tuple | list):
            return type(output)([self._wrapped(each) for each in output])
        return output if output is None else internal._add_batch_dim(output, 0, self._level)

    def _behind(self, arg: Any, one: dict[int, Tensor]) -> Any:
        if type(arg) in (tuple, list):
            return type(arg)(self._behind(each, one) for each in arg)
        if not isinstance(arg, Tensor):
            return arg
        if id(arg) not in one:
            stack, at = internal._unwrap_batched(arg, self._level)
            if at is None:
                stack = stack.expand(self.count, *stack.shape)
            one[id(arg)] = stack.movedim(at, 0) if at else stack
        return one[id(arg)]
