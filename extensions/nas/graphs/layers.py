"""Layers as values: their arguments, recipes to make them again, and copying of their weights."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from ....base.errors import UsageError

#: A class or function of a module that makes a layer, or the name of a class in torch.nn.
Maker = str | Callable[..., nn.Module]
#: Arguments of constructors that do not describe a layer, such as its device.
_ELSEWHERE = {"self", "device", "dtype", "_weight", "_freeze"}
_HOOKS = [each for each in vars(nn.Module()) if each.endswith("_hooks")]
_RECURRENT = [
    "input_size", "hidden_size", "num_layers", "bias", "batch_first", "dropout", "bidirectional",
]  # fmt: skip
#: Names of the arguments of classes whose signature does not list them.
_NAMES: dict[type, list[str]] = {
    nn.RNN: [*_RECURRENT, "nonlinearity"],
    nn.GRU: _RECURRENT,
    nn.LSTM: [*_RECURRENT, "proj_size"],
}


def settings(module: nn.Module) -> dict[str, Any] | None:
    """Return the arguments that make a layer again.

    Returns None if its class is not in torch.nn, or if the layer does not keep its arguments.
    """
    kind = type(module)
    if getattr(nn, kind.__name__, None) is not kind:
        return None
    names = _NAMES.get(kind) or [*inspect.signature(kind.__init__).parameters]
    arguments: dict[str, Any] = {}
    for name in names:
        if name in _ELSEWHERE:
            continue
        if name == "bias" and isinstance(module, nn.MultiheadAttention):
            value: Any = module.in_proj_bias is not None
        elif name == "add_bias_kv":
            value = module.bias_k is not None
        elif name in {"args", "kwargs"} or not hasattr(module, name):
            return None
        else:
            value = getattr(module, name)
            if name == "bias" and not isinstance(value, bool):
                value = value is not None
        try:
            arguments[name] = as_tuples(json.loads(json.dumps(value)))
        except TypeError:
            return None
    return arguments


def rebuilt(module: nn.Module, changes: Mapping[str, Any]) -> nn.Module:
    """Return a layer like ``module`` with ``changes`` and new weights, on the same device.

    Raises UsageError if the arguments of ``module`` are not known, for names in ``changes`` that
    its class does not take, and for values that its class refuses.
    """
    arguments = settings(module)
    kind = type(module).__name__
    if arguments is None:
        allowed = "a layer of torch.nn that keeps its arguments; replace it instead"
        raise UsageError.refuse("the layer to update", kind, allowed)
    if any(vars(module)[each] for each in _HOOKS):
        allowed = "a layer without hooks, since they would be lost; replace it instead"
        raise UsageError.refuse("the layer to update", kind, allowed)
    for name in changes:
        if name not in arguments:
            raise UsageError.refuse(
                f"an argument of {kind}", name, f"one of {', '.join(arguments)}"
            )
    try:
        layer: nn.Module = type(module)(**arguments | dict(changes))
    except (TypeError, ValueError, RuntimeError, AssertionError) as error:
        raise UsageError(f"{kind} refuses {dict(changes)}: {error}") from error
    frozen = [each.requires_grad for each in module.parameters()]
    _check_numbers(layer)
    return _as(layer, module).requires_grad_(not frozen or any(frozen))


def recipe(make: Maker, args: Any, kwargs: Any) -> dict[str, Any]:
    """Return a recipe to make a layer, as JSON.

    Raises UsageError for a layer that another process could not make.
    """
    if isinstance(make, str):
        if not _is_layer(getattr(nn, make, None)):
            raise UsageError.refuse("the layer", make, "the name of a layer in torch.nn")
        path = f"torch.nn:{make}"
    else:
        name = getattr(make, "__qualname__", "<no name>")
        path = f"{getattr(make, '__module__', '')}:{name}"
        if callable(make) and getattr(nn, name, None) is make:
            path = f"torch.nn:{name}"
        elif "<" in name or _at(path) is not make:
            allowed = "the name of a layer in torch.nn, or a class or function of a module"
            raise UsageError.refuse("the layer", make, allowed)
    try:
        return {"make": path, "args": json.loads(json.dumps(args)), "kwargs": _plain(kwargs)}
    except TypeError as error:
        allowed = "numbers, strings, booleans, None, and lists of them"
        raise UsageError.refuse(f"the arguments of {path}", (args, kwargs), allowed) from error


def made(recipe: Mapping[str, Any], like: nn.Module | None = None) -> nn.Module:
    """Return the layer that ``recipe`` makes, on the device of ``like``.

    Raises UsageError if the layer cannot be made.
    """
    make = _at(recipe["make"])
    arguments = as_tuples(recipe["args"]), as_tuples(recipe["kwargs"])
    try:
        module = make(*arguments[0], **arguments[1])
    except Exception as error:
        raise UsageError(f"{recipe['make']} cannot be made: {error}") from error
    if not isinstance(module, nn.Module):
        raise UsageError.refuse(recipe["make"], module, "a class or function that gives a module")
    _check_numbers(module)
    return module if like is None else _as(module, like)


def carried(old: nn.Module, new: nn.Module) -> dict[str, list[int]]:
    """Copy weights from ``old`` to ``new`` where names and numbers of dimensions are equal.

    Only the part that both tensors have in common is copied. Returns the size of that part, by
    name. T. Chen, I. Goodfellow, J. Shlens, Net2Net, ICLR 2016, start in the same way. Here the
    rest of the new layer keeps its initial values, so the function of the model is not preserved.
    """
    sizes = {}
    before = old.state_dict(keep_vars=True)
    with torch.no_grad():
        for name, tensor in new.state_dict(keep_vars=True).items():
            source = before.get(name)
            if source is not None and source.dim() == tensor.dim():
                sizes[name] = [*map(min, source.shape, tensor.shape)]
                part = tuple(slice(size) for size in sizes[name])
                tensor[part].copy_(source[part]) if part else tensor.copy_(source)
    return sizes


def as_tuples(value: Any) -> Any:
    """Return ``value``, which was read from JSON, with tuples in place of lists."""
    if isinstance(value, Mapping):
        return {key: as_tuples(each) for key, each in value.items()}
    return tuple(as_tuples(each) for each in value) if isinstance(value, list | tuple) else value


def _as(module: nn.Module, like: nn.Module) -> nn.Module:
    for parameter in like.parameters():
        module.to(parameter.device, parameter.dtype)
        break
    return module.train(like.training)


def _check_numbers(module: nn.Module) -> None:
    """Raise UsageError if a parameter is empty. Torch makes such layers with only a warning."""
    for name, parameter in module.named_parameters():
        if not is_lazy(parameter) and not parameter.numel():
            kind, shape = type(module).__name__, list(parameter.shape)
            allowed = "at least one number in each parameter"
            raise UsageError.refuse(f"the shape of {name} of a {kind}", shape, allowed)


def _plain(values: Any) -> Any:
    return json.loads(json.dumps(values))


def _is_layer(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, nn.Module)


def _at(path: str) -> Any:
    """Return the object at ``module:name``; None if there is no such object."""
    module, _, name = path.partition(":")
    try:
        value: Any = sys.modules.get(module) or import_module(module)
    except (ImportError, ValueError):
        return None
    for part in name.split("."):
        value = getattr(value, part, None)
    return value
