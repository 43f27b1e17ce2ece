"""What a step computes, recorded once and called again in the steps that follow.

Theory of operation. A step of small networks takes most of its time above the kernels: in the
user's code, in the rules for all trials, in the graph of gradients. From step to step all of that
does the same. So in one step the operators that reach the kernels are recorded, and in further ones
they are called in their order: with the batch of the step, with what those before have given, and
else with what they were called with. They are the same kernels on the same shapes, so the bits are
the same.

The user's code runs while it is recorded, and not when that is played. What it may read of a trial
is known (``stand_in``), so a recording is played as long as that has the same values. What else it
may do is refused when trials are trained together. Steps with random numbers are not recorded, nor
those in which a value or a shape depends on the data. In its first step a recording is compared
with what is computed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from ..system.tensor_bytes import same_bits
from .operators.not_fused import NotFused

if TYPE_CHECKING:
    from .stand_in import Common, Reads

#: The losses (K,), and the gradients of each stack; None where there is none.
Made = tuple[Tensor, Sequence[Tensor | None]]
#: In which call of its kind a step is recorded. That takes as long as some steps gain.
_RECORDED = 3
_Tag = torch.Tag
_REFUSED = {
    _Tag.nondeterministic_seeded: "draws random numbers",
    _Tag.data_dependent_output: "reads a value",
    _Tag.dynamic_output_shape: "has a shape that depends on values",
}


class Recordings:
    """The recorded steps of one group, by their kinds."""

    def __init__(self, stacks: Sequence[Tensor]) -> None:
        """``stacks``: the memory of the trials, the only one that a step may change."""
        self._stacks = stacks
        self._calls = Counter[Hashable]()
        #: None: steps of this kind are not recorded.
        self._made: dict[Hashable, _Recording | None] = {}

    def forget(self) -> None:
        """What the steps compute may be something else from now on."""
        self._calls.clear()
        self._made.clear()

    def step(
        self,
        kind: Hashable,
        batch: tuple[Tensor, ...],
        common: Common,
        compute: Callable[[], Made],
    ) -> Made:
        """What ``compute`` gives of the batch, computed or played.

        Steps of one kind differ in the values of their batches alone. ``common`` gives the code
        what it reads.
        """
        made = self._made.get(kind)
        if made is not None and made.is_of(common):
            return made.play(batch) if made.compared else self._compare(kind, made, batch, compute)
        if made is not None:  # the code may read other values
            del self._made[kind]
            self._calls[kind] = 0
        self._calls[kind] += 1
        if self._calls[kind] < _RECORDED or kind in self._made or batch[0].is_cuda:
            return compute()
        return self._record(kind, batch, common, compute)

    def _record(
        self,
        kind: Hashable,
        batch: tuple[Tensor, ...],
        common: Common,
        compute: Callable[[], Made],
    ) -> Made:
        self._made[kind] = None
        recorder = _Recorder(batch, self._stacks)
        with recorder:
            losses, gradients = compute()
        if not recorder.refused:
            with suppress(NotFused):  # what it reads cannot be compared with what it will read
                reads = common.reads()
                self._made[kind] = recorder.end(losses, gradients, common, reads)
        return losses, gradients

    def _compare(
        self,
        kind: Hashable,
        made: _Recording,
        batch: tuple[Tensor, ...],
        compute: Callable[[], Made],
    ) -> Made:
        """Play and compute; what was computed counts."""
        before = [each.clone() for each in self._stacks]
        played, of_played = made.play(batch)
        after = [each.clone() for each in self._stacks]
        for each, old in zip(self._stacks, before, strict=True):
            each.copy_(old)
        losses, gradients = compute()
        pairs = [
            (played, losses),
            *zip(of_played, gradients, strict=True),
            *zip(after, self._stacks, strict=True),
        ]
        made.compared = all(_same(*each) for each in pairs)
        if not made.compared:
            self._made[kind] = None
        return losses, gradients


def _same(one: Tensor | None, other: Tensor | None) -> bool:
    if one is None or other is None:
        return one is other
    return one.shape == other.shape and same_bits(one, other)


@dataclass(frozen=True, slots=True)
class _Call:
    """A call of an operator. Values have numbers."""

    operator: Callable[..., Any]
    arguments: Callable[[list[Any]], Sequence[Any]]
    named: dict[str, int]
    #: The number of the result, or those of several.
    result: int | tuple[int, ...]
    #: Those that no later call takes.
    last: tuple[int, ...]


class _Recording:
    """The calls of one step."""

    def __init__(
        self,
        calls: Sequence[_Call],
        values: Sequence[Any],
        results: Sequence[int],
        common: Common,
        reads: Reads,
    ) -> None:
        """``values``: those of a batch are the first; of what calls give there is none yet."""
        #: Whether it was compared with what is computed.
        self.compared = False
        self._calls = calls
        self._values = values
        self._results = results
        self._common = common
        self._reads = reads

    def is_of(self, common: Common) -> bool:
        """Whether the code reads there what it has read when this was recorded."""
        if common is not self._common and common.has_same(self._reads):
            self._common = common
        return common is self._common

    @torch.no_grad()
    def play(self, batch: tuple[Tensor, ...]) -> Made:
        values = [*batch, *self._values[len(batch) :]]
        for call in self._calls:
            named = {name: values[i] for name, i in call.named.items()}
            made = call.operator(*call.arguments(values), **named)
            if isinstance(call.result, int):
                values[call.result] = made
            else:
                for i, each in zip(call.result, made, strict=True):
                    values[i] = each
            for i in call.last:
                values[i] = None
        losses, *gradients = [values[i] for i in self._results]
        return losses, gradients


class _NotRecorded(Exception):
    """The message says why."""


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's
    """Records the calls of operators while it is entered.

    Tensors are known by their memory, since the graph of gradients makes new ones of the same. Here
    none of it is freed.
    """

    def __init__(self, batch: Sequence[Tensor], stacks: Sequence[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        #: Why this cannot be recorded; empty if it can.
        self.refused = ""
        #: The memory that may be written to: that of the trials, and what was made here.
        self._memory = {each.untyped_storage()._cdata for each in stacks}
        self._values: list[Any] = []
        self._numbers: dict[Hashable, int] = {}
        #: The values that calls give, or the batch.
        self._made = set[int]()
        self._calls: list[_Call] = []
        for each in batch:
            self._made.add(self._number(each))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = kwargs or {}
        made = func(*args, **named)
        if not self.refused:
            try:
                self._take(func, args, named, made)
            except _NotRecorded as refused:
                self.refused = str(refused)
        return made

    def _take(self, func: Any, args: Sequence[Any], named: dict[str, Any], made: Any) -> None:
        if refused := [words for tag, words in _REFUSED.items() if tag in func.tags]:
            raise _NotRecorded(f"{func} {refused[0]}")
        arguments = [self._numbers_of(each) for each in args]
        by_name = {name: self._number(each) for name, each in named.items()}
        taken = {i for each in (*arguments, *by_name.values()) for i in _flat(each)}
        if func.is_view and self._made.isdisjoint(taken):
            return  # a view of what stays where it is
        self._check_written(func, args, named)
        many, before = isinstance(made, tuple | list), len(self._values)
        results = [self._number(each) for each in (made if many else [made])]
        if func.is_view and taken.issuperset(results):
            return  # it is what is there
        self._made.update(i for i in results if i >= before)  # not what was overwritten
        self._memory.update(
            each.untyped_storage()._cdata
            for each in (made if many else [made])
            if isinstance(each, Tensor)
        )
        result = tuple(results) if many else results[0]
        self._calls.append(_Call(func, _picker(arguments), by_name, result, tuple(taken)))

    def _numbers_of(self, value: Any) -> Any:
        if isinstance(value, tuple | list) and any(isinstance(each, Tensor) for each in value):
            return [self._number(each) for each in value]
        return self._number(value)

    def _number(self, value: Any) -> int:
        if not isinstance(value, Tensor):
            self._values.append(value)
            return len(self._values) - 1
        if value.layout != torch.strided or value.is_complex():
            raise _NotRecorded(f"a tensor is {value.layout}, of {value.dtype}")
        memory = value.untyped_storage()._cdata, value.storage_offset()
        about = (*memory, value.shape, value.stride(), value.dtype)
        if about not in self._numbers:
            self._values.append(value)
            self._numbers[about] = len(self._values) - 1
        return self._numbers[about]

    def _check_written(self, func: Any, args: Sequence[Any], named: dict[str, Any]) -> None:
        """Only what was made in this step, and the trials' memory, may be written to."""
        for i, argument in enumerate(func._schema.arguments):
            if argument.alias_info is None or not argument.alias_info.is_write:
                continue
            written = args[i] if i < len(args) else named.get(argument.name)
            for each in written if isinstance(written, tuple | list) else [written]:
                if each is not None and each.untyped_storage()._cdata not in self._memory:
                    raise _NotRecorded(f"{func} writes to what is not a trial's")

    def end(
        self,
        losses: Tensor,
        gradients: Sequence[Tensor | None],
        common: Common,
        reads: Reads,
    ) -> _Recording:
        """What was recorded."""
        results = [self._number(each) for each in (losses, *gradients)]
        needed, calls = set(results), list[_Call]()
        for call in reversed(self._calls):
            last = tuple(i for i in call.last if i in self._made and i not in needed)
            needed.update(call.last)
            calls.insert(0, replace(call, last=last))
        values = [None if i in self._made else each for i, each in enumerate(self._values)]
        return _Recording(calls, values, results, common, reads)


def _flat(numbers: Any) -> Sequence[int]:
    return numbers if isinstance(numbers, list) else [numbers]


def _picker(arguments: Sequence[Any]) -> Callable[[list[Any]], Sequence[Any]]:
    """What gives the arguments with these numbers; a list of them is a list."""
    if len(arguments) > 1 and not any(isinstance(each, list) for each in arguments):
        return itemgetter(*arguments)

    def pick(values: list[Any]) -> Sequence[Any]:
        return [
            [values[i] for i in each] if isinstance(each, list) else values[each]
            for each in arguments
        ]

    return pick
