"""Records the operators that a function calls, to call them again with other tensors.

Theory of operation. Operators are seen where they reach the kernels, so calls from all layers above
are recorded: rules, vmap, the graph of gradients. An argument of a call is either an argument of
the function, or the result of an earlier call, or the same value each time. Tensors are identified
by their memory, since the graph of gradients makes new tensors of the same memory. A view of memory
that stays in place is kept as it is.

A recording may depend on shapes, but not on values. So operators that pass a value to Python, or
whose result's shape depends on values, are refused. Operators may write only to memory that was
made in the recording or is declared writable, and draw only from declared generators.
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

#: The most bytes allocated during a recording, in which nothing is freed. Steps that allocate more
#: spend most of their time in the kernels anyway.
LARGEST = 1 << 25
_REFUSED = {
    torch.Tag.data_dependent_output: "reads a value",
    torch.Tag.dynamic_output_shape: "has a shape that depends on values",
    torch.Tag.inplace_view: "changes a tensor's shape in place",
}


@dataclass(frozen=True, slots=True)
class _Call:
    """A call of an operator. Its arguments and results are given by numbers of values."""

    operator: Callable[..., Any]
    arguments: Callable[[list[Any]], Sequence[Any]]
    named: dict[str, int]
    #: The number of the result, or the numbers of several results.
    result: int | tuple[int, ...]
    #: The numbers of values that no later call needs.
    last: tuple[int, ...] = ()


class Recording:
    """Recorded calls, which can be made again."""

    def __init__(
        self, calls: Sequence[_Call], values: Sequence[Any], results: Sequence[int]
    ) -> None:
        """Keep the calls. ``values`` has the function's arguments first, and None for results."""
        self._calls = calls
        self._values = values
        self._results = results

    @torch.no_grad()
    def play(self, given: tuple[Tensor, ...]) -> list[Any]:
        """Return the function's results for other tensors of the same shapes, without gradients."""
        values = [*given, *self._values[len(given) :]]
        for call in self._calls:
            kwargs = {name: values[i] for name, i in call.named.items()}
            output = call.operator(*call.arguments(values), **kwargs)
            if isinstance(call.result, int):
                values[call.result] = output
            else:
                for i, each in zip(call.result, output, strict=True):
                    values[i] = each
            for i in call.last:
                values[i] = None
        return [values[i] for i in self._results]


class _Refused(NotFused):
    """Raised if a call cannot be recorded. The message is the reason."""


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's
    """A mode that records the operators called while it is entered."""

    def __init__(
        self,
        given: Sequence[Tensor],
        kept: Sequence[Tensor],
        generators: Sequence[torch.Generator] = (),
    ) -> None:
        """Prepare a recording.

        Args:
            given: The function's arguments, which are other tensors each time.
            kept: Tensors whose memory the calls may write to.
            generators: Generators from which the calls may draw; the caller seeds them each time.
        """
        super().__init__()  # type: ignore[no-untyped-call]
        #: The reason why the calls cannot be recorded; empty if they can.
        self.refused = ""
        #: True if a call draws random numbers.
        self.draws = False
        self._generators = {_generator(each) for each in generators}
        self._values: list[Any] = list(given)
        self._numbers = dict[Hashable, int]()
        #: The numbers of the values that are given or computed again each time.
        self._made = set(range(len(given)))
        #: The calls, each with the numbers of the values that the call takes.
        self._calls: list[tuple[_Call, set[int]]] = []
        #: Memory that may be written to: that of given values, of results, and of the kept tensors.
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
        keywords = kwargs or {}
        output = func(*args, **keywords)
        if not self.refused:
            try:
                self._take(func, args, keywords, output)
            except _Refused as refused:
                self.refused = f"{func} {refused}"
                self._values.clear()
        return output

    def _take(self, func: Any, args: Sequence[Any], named: dict[str, Any], output: Any) -> None:
        kind = _kind(func)
        if kind.refused:
            raise _Refused(kind.refused)
        if kind.is_random and not self._may_draw(kind, args, named):
            raise _Refused("draws random numbers")
        arguments = [self._numbers_of(each) for each in args]
        by_name = {name: self._number(each) for name, each in named.items()}
        inputs = {i for each in (*arguments, *by_name.values()) for i in _flat(each)}
        if kind.is_view and self._made.isdisjoint(inputs):
            return  # a view of memory that stays in place
        for i, name in kind.written:
            self._check_is_ours(args[i] if i < len(args) else named.get(name))
        many, before = isinstance(output, tuple | list), len(self._values)
        results = [self._number(each, made=True) for each in (output if many else [output])]
        if kind.is_view and inputs.issuperset(results):
            return  # the view is its argument
        self._made.update(i for i in results if i >= before)  # but not values written to
        for i in results:
            self._own(self._values[i])
        result = tuple(results) if many else results[0]
        self._calls.append((_Call(func, _picker(arguments), by_name, result), inputs))

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
        """Return the number of ``value``: an argument of a call, or, if ``made``, a result."""
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
        """Note that the memory of ``result`` was allocated in this recording."""
        if isinstance(result, Tensor) and _memory(result) not in self._memory | self._kept:
            self._memory.add(_memory(result))
            self._bytes += result.untyped_storage().nbytes()
            if self._bytes > LARGEST:
                raise _Refused(f"makes more than {LARGEST:,} bytes, with those before")

    def end(self, results: Sequence[Tensor | None]) -> Recording:
        """Return the recording, which returns ``results`` when played.

        Call this only if ``refused`` is empty. May raise ``NotFused``.
        """
        numbers = [self._number(each) for each in results]
        needed_values, calls = set(numbers), list[_Call]()
        for call, inputs in reversed(self._calls):
            outputs = (call.result,) if isinstance(call.result, int) else call.result
            ending = {*inputs, *outputs} - needed_values
            last = tuple(i for i in ending if i in self._made)
            needed_values.update(inputs)
            calls.append(replace(call, last=last))
        values = [None if i in self._made else each for i, each in enumerate(self._values)]
        return Recording(calls[::-1], values, numbers)


@dataclass(frozen=True, slots=True)
class _Kind:
    """Facts about an operator."""

    #: The reason why a call of the operator cannot be recorded; empty if it can.
    refused: str
    is_view: bool
    is_random: bool
    #: The position of the argument ``dropout_p``, or None.
    rate: int | None
    #: The positions and names of the arguments that the operator writes to.
    written: tuple[tuple[int, str], ...]


@cache
def _kind(func: Any) -> _Kind:
    refusals = [words for tag, words in _REFUSED.items() if tag in func.tags]
    arguments = list(enumerate(func._schema.arguments))
    rates = [i for i, each in arguments if each.name == "dropout_p"]
    aliased = [(i, each) for i, each in arguments if each.alias_info is not None]
    written_args = [(i, each.name) for i, each in aliased if each.alias_info.is_write]
    return _Kind(
        refusals[0] if refusals else "",
        bool(aliased) and not written_args,
        torch.Tag.nondeterministic_seeded in func.tags,
        rates[0] if rates else None,
        tuple(written_args),
    )


def _generator(generator: torch.Generator) -> int:
    """Return a generator's identity, since torch makes several Python objects for one generator."""
    identity: int = generator._cdata  # type: ignore[attr-defined]  # torch's stubs lack it
    return identity


def _memory(tensor: Tensor) -> Hashable:
    if tensor.layout != torch.strided or tensor.is_complex():
        raise _Refused(f"takes or gives a tensor that is {tensor.layout}, of {tensor.dtype}")
    identity: int = tensor.untyped_storage()._cdata
    return identity


def _geometry(tensor: Tensor) -> Hashable:
    about = tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype
    return _memory(tensor), *about


def _flat(numbers: Any) -> Sequence[int]:
    return numbers if isinstance(numbers, list) else [numbers]


def _picker(arguments: Sequence[Any]) -> Callable[[list[Any]], Sequence[Any]]:
    """Return a function that picks the values with the numbers in ``arguments`` from a list.

    A list of numbers picks a list of values.
    """
    if len(arguments) > 1 and not any(isinstance(each, list) for each in arguments):
        return itemgetter(*arguments)

    def pick(values: list[Any]) -> Sequence[Any]:
        return [
            [values[i] for i in each] if isinstance(each, list) else values[each]
            for each in arguments
        ]

    return pick
