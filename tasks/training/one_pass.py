"""Compute ``metrics`` and ``loss`` of a batch from one forward pass, if that changes no bit.

Theory of operation. Most code calls ``model(inputs)`` in both. So for validation data the output of
the last call of the whole model in ``metrics`` is kept, and the first call in ``loss`` returns it
if it has the same tensors. This is done only if the call can have been nothing but a function of
these tensors, and would be the same function again:

- the model is plain: strided parameters and buffers, nothing compiled, no hooks;
- all of it is in evaluation mode, without gradients, and arguments and output are plain tensors;
- the call drew no random numbers and changed neither an attribute nor a buffer of a module;
- arguments, output, weights, attributes, modes and torch's settings are as they were after it.

A call may also have effects that none of this shows, such as an item added to a list outside of the
modules. So for the first batch of a trial the loss is computed in both ways. If the bits differ, or
all these checks take longer than a pass, both passes are computed for the trial from then on. If
the bits are equal, the process compares no more trials of this code whose models are built alike
and whose hyperparameters differ only in floating-point numbers: a first batch may be all of the
validation data, and most trials of a search are trained for few epochs.
"""

from __future__ import annotations

import types
from collections.abc import Hashable, Iterator
from contextlib import suppress
from time import perf_counter
from typing import Any
from weakref import WeakKeyDictionary, ref

import torch
from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook

from ..contracts.contract import TorchTrainable
from ..system.unchanged import unchanged
from .seeding import generators

#: Names of the attributes that every module has, except for its mode.
_COMMON = frozenset(vars(nn.Module())) - {"training"}
#: Types of containers whose items are compared.
_CONTAINERS = (list, tuple, set, frozenset, dict)
#: Types of arguments, in addition to tensors, with which an output may be kept.
_VALUES = (int, float, str, type(None))
#: For each class, the kinds of trials (``_kind``) for which both ways gave the same bits; and the
#: most kinds that are kept for a class.
_EQUAL = WeakKeyDictionary[type[TorchTrainable], set[Hashable]]()
_MOST = 256


class OnePass:
    """Stands in for a model's ``forward`` while the values of a batch are computed."""

    def __init__(self, model: nn.Module, code: TorchTrainable) -> None:
        self.model = model
        self._equal, self._kind = _EQUAL.setdefault(type(code), set()), _kind(code, model)
        #: False if two passes are needed, or the code takes only one anyway.
        self._may = type(code).metrics is not TorchTrainable.metrics
        #: True once both ways have given the same bits, for this trial or another one of its kind.
        self._compared = self._kind in self._equal
        #: The output of the last call in ``metrics``, and the state seen after it.
        self._kept_pass: tuple[Tensor, list[Any]] | None = None
        self._in_loss = False
        #: True if ``loss`` was given the kept output.
        self._was_returned = False
        #: Seconds of the last pass in ``metrics``, and of the checks of its effects.
        self._pass, self._looking = 0.0, 0.0

    def values(self, code: TorchTrainable, batch: Any) -> dict[str, Any]:
        """Return ``metrics`` of a batch of validation data, and its ``loss`` if they lack it."""
        if not (self._may and _plain(self.model)):
            values = dict(code.metrics(self.model, batch))
            return values if "loss" in values else {**values, "loss": code.loss(self.model, batch)}
        self._kept_pass, self._in_loss, self._was_returned = None, False, False
        vars(self.model)["forward"] = self
        try:
            values = dict(code.metrics(self.model, batch))
            self._may = "loss" not in values and self._kept_pass is not None
            if "loss" in values:
                return values
            values = {name: _apart(value, self._kept_pass) for name, value in values.items()}
            self._in_loss = True
            if self._compared:
                return {**values, "loss": code.loss(self.model, batch)}
            kept_loss = self._loss_of_kept(code, batch) if self._may else None
        finally:
            vars(self.model).pop("forward", None)
            self._kept_pass = None
        loss = code.loss(self.model, batch)
        if self._may:
            self._compare(kept_loss, _copied(loss))
        return {**values, "loss": loss}

    def _loss_of_kept(self, code: TorchTrainable, batch: Any) -> Tensor | None:
        """Return the loss from the kept output, without side effects; None if that was not used."""
        with unchanged(self.model), suppress(Exception):  # user code may need the pass
            loss = _copied(code.loss(self.model, batch))
            return loss if self._was_returned else None
        return None

    def _compare(self, kept: Tensor | None, full: Tensor | None) -> None:
        if kept is None or full is None:
            self._may = False
        elif not full.isnan().any():  # else nothing can be said, as NaN equals nothing
            pays = self._looking < self._pass
            self._may = self._compared = torch.equal(kept, full) and pays
            if self._compared:
                if len(self._equal) >= _MOST:
                    self._equal.clear()
                self._equal.add(self._kind)

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Compute the model's output, or return the kept output."""
        forward = types.MethodType(type(self.model).forward, self.model)
        if torch.compiler.is_compiling():
            return forward(*args, **named)
        inputs = [*args, *named, *named.values()]
        kept_pass, self._kept_pass = self._kept_pass, None
        if self._in_loss:
            output = None if kept_pass is None else kept_pass[0]
            if kept_pass is not None and self._is_same(kept_pass[1], inputs, kept_pass[0]):
                self._was_returned = True
                return output
            return forward(*args, **named)
        kept_pass = None  # frees the kept output's memory for the pass
        began = perf_counter()
        before = self._state_of(inputs)
        passing = perf_counter()
        output = forward(*args, **named)
        passed = perf_counter()
        if before is not None and self._is_same(before, inputs):
            after = self._state_of(inputs, output)
            self._kept_pass = None if after is None else (output, after)
        self._pass = passed - passing
        self._looking = perf_counter() - began - self._pass
        return output

    def _is_same(self, before: list[Any], given: list[Any], *output: Tensor) -> bool:
        now = self._state_of(given, *output)
        with suppress(Exception):  # users' classes may not be comparable
            return now is not None and _same(before, now)
        return False

    def _state_of(self, given: list[Any], *output: Any) -> list[Any] | None:
        """Return all that a call depends on and could change; None if it is no plain call."""
        with suppress(Exception):  # tensors without memory raise an error, for example
            tensors = [each for each in (*given, *output) if not isinstance(each, _VALUES)]
            plain = all(_is_plain(each) for each in tensors) and not _is_hooked(self.model)
            training = any(module.training for module in self.model.modules())
            if plain and not training and not torch.is_grad_enabled():
                return [*given, *_settings(), *_of_tensors(tensors), *_of_model(self.model)]
        return None

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """Return the ``forward`` of the copied model, if user code copies the model meanwhile."""
        return types.MethodType(type(self.model).forward, memo.get(id(self.model), self.model))

    def __reduce__(self) -> Any:
        return getattr, (self.model, "forward")


def _kind(code: TorchTrainable, model: nn.Module) -> Hashable:
    """Return a key for trials that one comparison covers.

    It keeps no class of the user's alive, since a module's class would keep all that its file
    defines.
    """
    choices = (f"{n}={v!r}" for n, v in code.params.items() if not isinstance(v, float))
    built = (
        (ref(type(module)), *(each.shape for each in module.parameters(recurse=False)))
        for module in model.modules()
    )
    return *sorted(choices), *built


def _settings() -> Iterator[Any]:
    """Yield torch's settings and the states of generators, in comparable form."""
    for kind in ("cpu", "cuda"):
        yield from (torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind))
    yield from (torch.get_default_dtype(), torch.get_num_threads())
    yield from (torch.are_deterministic_algorithms_enabled(), torch.get_float32_matmul_precision())
    yield generators()
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]  # torch leaves it untyped
        yield torch.cuda.get_rng_state().numpy().tobytes()


def _of_tensors(tensors: list[Tensor]) -> Iterator[Any]:
    for tensor in tensors:
        yield from (tensor, tensor._version, tensor.data_ptr())


def _of_model(model: nn.Module) -> Iterator[Any]:
    """Yield the modules and all their tensors and attributes."""
    for module in model.modules():
        yield module
        for tensors in (module._parameters, module._buffers):
            yield from _of_tensors([each for each in tensors.values() if each is not None])
        own = vars(module)
        for name in own.keys() - _COMMON - {"forward"}:
            items = [own[name]]
            if isinstance(own[name], _CONTAINERS):
                items += own[name]
                items += own[name].values() if isinstance(own[name], dict) else ()
            for item in items:
                yield item
                if isinstance(item, Tensor):
                    yield item._version
                elif isinstance(item, (list, set, dict)) and item is not own[name]:
                    raise ValueError("a container in a container may change unseen")


def _same(one: list[Any], other: list[Any]) -> bool:
    """Return True if both have the same objects; numbers and states may just be equal."""
    simple = (int, float, bytes, tuple, str)
    return len(one) == len(other) and all(
        a is b or (type(a) is type(b) and isinstance(a, simple) and not _holds(a) and a == b)
        for a, b in zip(one, other, strict=True)
    )


def _holds(value: Any) -> bool:
    """Return True if ``value`` is a tuple with tensors in it, which ``==`` cannot compare."""
    return isinstance(value, tuple) and any(isinstance(each, Tensor) for each in value)


def _is_plain(value: Any) -> bool:
    return (
        type(value) is Tensor
        and value.layout is torch.strided
        and not (value.requires_grad or value.is_inference() or value.is_nested)
    )


def _plain(model: nn.Module) -> bool:
    """Return True if calling ``model`` runs ``forward`` on plain tensors and nothing else."""
    if isinstance(model, torch.jit.ScriptModule) or "forward" in vars(model):
        return False  # torch.compile sets it, too
    if model._compiled_call_impl is not None or _is_hooked(model):
        return False
    if any(type(parameter) is not nn.Parameter for parameter in model.parameters()):
        return False
    tensors = [*model.parameters(), *model.buffers()]
    return all(each.layout is torch.strided and not each.is_nested for each in tensors)


def _is_hooked(model: nn.Module) -> bool:
    of_all = _has_any_global_hook()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    return of_all or any(
        module._forward_hooks or module._forward_pre_hooks for module in model.modules()
    )


def _apart(value: Any, kept: tuple[Tensor, list[Any]] | None) -> Any:
    """Return a metric that shares no memory with the output, which ``loss`` may overwrite."""
    if kept is None or not _is_plain(value):
        return value
    own, shared = value.untyped_storage(), kept[0].untyped_storage()
    return value.clone() if own.data_ptr() == shared.data_ptr() else value


def _copied(loss: Any) -> Tensor | None:
    """Return a copy of a loss that is no view of much memory; None if it is no number."""
    return torch.as_tensor(loss).clone() if isinstance(loss, (Tensor, int, float)) else None
