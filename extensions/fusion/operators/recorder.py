"""The operators that a function calls, recorded, and called again with other tensors.

Theory of operation. Operators are seen where they reach the kernels, so all above is recorded with
what it calls: rules, vmap, the graph of gradients. A call's arguments are what the function was
given, what calls before have given, or else what they were. Tensors are known by their memory,
since the graph of gradients makes new ones of the same. A view of memory that stays where it is
stays as it is.

What is recorded may depend on shapes, and not on values. So an operator is refused that gives a
value to Python or a shape that depends on values. It may write to what was made in the recording,
and to memory that is said to be there for that. It may draw from generators that are said to be.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from .not_fused import NotFused

#: Bytes that may be made while it is recorded; nothing is freed meanwhile. Where more are made the
#: kernels take the time.
LARGEST = 1 << 25
_REFUSED = {
    torch.Tag.data_dependent_output: "reads a value",
    torch.Tag.dynamic_output_shape: "has a shape that depends on values",
    torch.Tag.inplace_view: "changes a tensor's shape in place",
}


@dataclass(frozen=True, slots=True)
class _Call:
    """A call of an operator. Values have numbers."""

    operator: Callable[..., Any]
    arguments: Callable[[list[Any]], Sequence[Any]]
    named: dict[str, int]
    #: The number of the result, or those of several.
    result: int | tuple[int, ...]
    #: Those that no later call takes.
    last: tuple[int, ...] = ()


class Recording:
    """The calls, to be made again."""

    def __init__(
        self, calls: Sequence[_Call], values: Sequence[Any], results: Sequence[int]
    ) -> None:
        """``values``: those that the function was given are the first; of results there is none."""
        self._calls = calls
        self._values = values
        self._results = results

    @torch.no_grad()
    def play(self, given: tuple[Tensor, ...]) -> list[Any]:
        """What the function gives of tensors like those that it was given, without gradients."""
        values = [*given, *self._values[len(given) :]]
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
        return [values[i] for i in self._results]


class _Refused(NotFused):
    """The message says why."""


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's
    """Records what is called while it is entered."""

    def __init__(
        self,
        given: Sequence[Tensor],
        kept: Sequence[Tensor],
        generators: Sequence[torch.Generator] = (),
    ) -> None:
        """``given`` is other tensors each time; to the memory of those ``kept`` may be written.

        What draws may draw from the ``generators``, which somebody seeds each time.
        """
        super().__init__()  # type: ignore[no-untyped-call]
        #: Why this cannot be recorded; empty if it can.
        self.refused = ""
        #: Whether something is drawn.
        self.draws = False
        self._generators = {_generator(each) for each in generators}
        self._values: list[Any] = list(given)
        self._numbers = dict[Hashable, int]()
        #: The numbers of what is made anew each time.
        self._made = set(range(len(given)))
        #: Each with the numbers of what it takes.
        self._calls: list[tuple[_Call, set[int]]] = []
        #: Memory that may be written to: what was given or made, and what is kept.
        self._memory = set[Hashable]()
        self._kept = set[Hashable]()
        self._bytes = 0
        try:
            self._numbers |= {_geometry(each): i for i, each in enumerate(given)}
            self._memory |= {_memory(each) for each in given}
            self._kept |= {_memory(each) for each in kept}
        except _Refused as refused:
            self.refused = str(refused)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = kwargs or {}
        made = func(*args, **named)
        if not self.refused:
            try:
                self._take(func, args, named, made)
            except _Refused as refused:
                self.refused = f"{func} {refused}"
                self._values.clear()
        return made

    def _take(self, func: Any, args: Sequence[Any], named: dict[str, Any], made: Any) -> None:
        kind = _kind(func)
        if kind.refused:
            raise _Refused(kind.refused)
        if kind.is_random and not self._may_draw(kind, args, named):
            raise _Refused("draws random numbers")
        arguments = [self._numbers_of(each) for each in args]
        by_name = {name: self._number(each) for name, each in named.items()}
        taken = {i for each in (*arguments, *by_name.values()) for i in _flat(each)}
        if kind.is_view and self._made.isdisjoint(taken):
            return  # of what stays where it is
        for i, name in kind.written:
            self._check_is_ours(args[i] if i < len(args) else named.get(name))
        many, before = isinstance(made, tuple | list), len(self._values)
        results = [self._number(each, made=True) for each in (made if many else [made])]
        if kind.is_view and taken.issuperset(results):
            return  # it is what is there
        self._made.update(i for i in results if i >= before)  # and not what was written to
        for i in results:
            self._own(self._values[i])
        result = tuple(results) if many else results[0]
        self._calls.append((_Call(func, _picker(arguments), by_name, result), taken))

    def _may_draw(self, kind: _Kind, args: Sequence[Any], named: dict[str, Any]) -> bool:
        if kind.rate is not None:
            dropped = args[kind.rate] if len(args) > kind.rate else named.get("dropout_p", 0.0)
            return bool(dropped == 0.0)
        sources = [each for each in (*args, *named.values()) if isinstance(each, torch.Generator)]
        self.draws = self.draws or bool(sources)
        return bool(sources) and all(_generator(each) in self._generators for each in sources)

    def _numbers_of(self, value: Any) -> Any:
        if isinstance(value, tuple | list) and any(isinstance(each, Tensor) for each in value):
            return [self._number(each) for each in value]
        return self._number(value)

    def _number(self, value: Any, *, made: bool = False) -> int:
        """The number of an argument, or of a result that was ``made``."""
        geometry = None
        if isinstance(value, Tensor):
            geometry = _geometry(value)
            if geometry in self._numbers:
                return self._numbers[geometry]
            if not made and _memory(value) in self._memory:
                raise _Refused("takes what was made where nobody saw it")
            self._numbers[geometry] = len(self._values)
        elif isinstance(value, tuple | list) and any(isinstance(each, Tensor) for each in value):
            raise _Refused("takes or gives lists of tensors with others")
        self._values.append(value)
        return len(self._values) - 1

    def _check_is_ours(self, written: Any) -> None:
        for each in written if isinstance(written, tuple | list) else [written]:
            if each is not None and _memory(each) not in self._memory | self._kept:
                raise _Refused("writes to memory of others")

    def _own(self, result: Any) -> None:
        """It was made here."""
        if isinstance(result, Tensor) and _memory(result) not in self._memory | self._kept:
            self._memory.add(_memory(result))
            self._bytes += result.untyped_storage().nbytes()
            if self._bytes > LARGEST:
                raise _Refused(f"makes more than {LARGEST:,} bytes, with those before")

    def end(self, results: Sequence[Tensor | None]) -> Recording:
        """What was recorded, which gives these. It was not ``refused``. May raise ``NotFused``."""
        numbers = [self._number(each) for each in results]
        needed, calls = set(numbers), list[_Call]()
        for call, taken in reversed(self._calls):
            given = (call.result,) if isinstance(call.result, int) else call.result
            ending = {*taken, *given} - needed
            last = tuple(i for i in ending if i in self._made)
            needed.update(taken)
            calls.append(replace(call, last=last))
        values = [None if i in self._made else each for i, each in enumerate(self._values)]
        return Recording(calls[::-1], values, numbers)


@dataclass(frozen=True, slots=True)
class _Kind:
    """What there is to know of an operator."""

    #: Why nothing with it is recorded; empty if it may be.
    refused: str
    is_view: bool
    is_random: bool
    #: Where it is told how much of attention is dropped, if it is.
    rate: int | None
    #: The arguments that it writes to: where each is, and its name.
    written: tuple[tuple[int, str], ...]


@cache
def _kind(func: Any) -> _Kind:
    refused = [words for tag, words in _REFUSED.items() if tag in func.tags]
    arguments = list(enumerate(func._schema.arguments))
    rates = [i for i, each in arguments if each.name == "dropout_p"]
    aliased = [(i, each) for i, each in arguments if each.alias_info is not None]
    written = [(i, each.name) for i, each in aliased if each.alias_info.is_write]
    return _Kind(
        refused[0] if refused else "",
        bool(aliased) and not written,
        torch.Tag.nondeterministic_seeded in func.tags,
        rates[0] if rates else None,
        tuple(written),
    )


def _generator(generator: torch.Generator) -> int:
    """Which one it is: torch has other objects of the same one."""
    made: int = generator._cdata  # type: ignore[attr-defined]  # torch's stubs lack it
    return made


def _memory(tensor: Tensor) -> Hashable:
    if tensor.layout != torch.strided or tensor.is_complex():
        raise _Refused(f"takes or gives a tensor that is {tensor.layout}, of {tensor.dtype}")
    made: int = tensor.untyped_storage()._cdata
    return made


def _geometry(tensor: Tensor) -> Hashable:
    about = tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype
    return _memory(tensor), *about


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
