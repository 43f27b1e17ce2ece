"""Values as keys: equal keys mean that code computes the same with one value as with the other."""

from __future__ import annotations

import functools
import types
from collections.abc import Hashable
from enum import Enum
from typing import Any

import torch
from torch import nn

from ...extensions.nas.models.choices import Chosen
from .operators.not_fused import NotFused

#: The largest tensor that is compared by its bytes.
_SMALL = 1 << 16
_PLAIN = (
    *(type(None), bool, int, str, bytes, Enum, type),
    *(types.FunctionType, types.BuiltinFunctionType),
    *(torch.dtype, torch.device, torch.memory_format),
)


def frozen(value: Any, where: str) -> Hashable:
    """The key of ``value``. Raises ``NotFused`` for what has none, naming ``where`` it is."""
    key: Hashable
    match value:
        case torch.Tensor():
            key = _frozen_tensor(value, where)
        case nn.Module():
            key = _frozen_module(value, where)
        case functools.partial():
            key = frozen([value.func, value.args, value.keywords], where)
        case float():
            key = value.hex()
        case dict():
            items = ((frozen(n, where), frozen(item, where)) for n, item in value.items())
            key = tuple(items)
        case set() | frozenset():
            key = frozenset(frozen(item, where) for item in value)
        case list() | tuple():
            key = tuple(frozen(item, where) for item in value)
        case _ if isinstance(value, _PLAIN):
            key = value
        case _:
            raise NotFused(f"{where} is a {type(value).__name__}, which cannot be compared")
    return type(value), key


def _frozen_tensor(value: torch.Tensor, where: str) -> Hashable:
    if value.requires_grad or value.nbytes > _SMALL or value.device.type != "cpu":
        raise NotFused(f"{where} is a tensor that is no parameter and no buffer")
    data = value.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    return value.dtype, tuple(value.shape), data


def _frozen_module(module: nn.Module, where: str) -> Hashable:
    """The key of a module that has neither parameters nor buffers, such as a loss."""
    if next(module.parameters(), None) is not None or next(module.buffers(), None) is not None:
        raise NotFused(f"{where} is a module with parameters or buffers of its own")
    return tuple((name, attributes(each, where)) for name, each in module.named_modules())


#: What a module has beside the user's attributes. ``training`` is set anew in every epoch.
_MACHINERY = frozenset(vars(nn.Module())) | {"_compiled_call_impl"}
_HOOKS = tuple(name for name in sorted(_MACHINERY) if name.endswith("_hooks"))


def attributes(module: nn.Module, where: str) -> Hashable:
    """The key of a module's class and attributes, without its parameters, buffers and modules."""
    here = f"{where or 'the model'} ({type(module).__name__})"
    if any(vars(module).get(name) for name in _HOOKS):
        raise NotFused(f"{here} has hooks")
    if isinstance(module, nn.RNNBase):
        raise NotFused(f"{here} is recurrent, for which there is no rule")
    if vars(module).get("_compiled_call_impl") is not None:
        raise NotFused(f"{here} is compiled")
    varying = {"p"} if type(module) is nn.Dropout else set()
    own = sorted(vars(module).keys() - _MACHINERY - varying - chosen(module))
    return type(module), tuple((n, frozen(vars(module)[n], f"{here}.{n}")) for n in own)


def looked_at(module: nn.Module) -> list[Any]:
    """The class, the attributes, and whether there are hooks, as objects of which each is one."""
    own = vars(module)
    hooked = any(own[name] for name in _HOOKS if name in own)
    named = [each for item in own.items() if item[0] not in _MACHINERY for each in item]
    return [type(module), hooked, own.get("_compiled_call_impl"), *named]


def chosen(module: nn.Module) -> set[str]:
    """The attributes that say what the module chose: its parts are compared themselves."""
    return {name for name, value in vars(module).items() if isinstance(value, Chosen)}
