"""Structures: trials are fused only if their structures are equal.

A trial that cannot be fused has no structure. Values are compared by their keys: if two values have
equal keys, code computes the same with either value.
"""

from __future__ import annotations

import functools
import operator
import types
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch
from torch import nn

from ...tasks.contracts.contract import TorchTrainable
from ...tasks.system.tensor_bytes import is_channels_last
from ...tasks.training.data import Rows, in_memory, length
from .operators.not_fused import NotFused
from .optimisers import kind_of

if TYPE_CHECKING:
    from torch.utils.data import Dataset

    from ...tasks.training.training import Training

#: The largest tensor (bytes) that is compared by its content.
_SMALL = 1 << 16
_PLAIN = (
    *(type(None), bool, int, str, bytes, Enum, type),
    *(types.FunctionType, types.BuiltinFunctionType),
    *(torch.dtype, torch.device, torch.memory_format),
)
#: Knobs that do not change the results of a trial with its data in memory and one thread.
_HARMLESS = {"threads", "loader_workers"}
#: Knobs that do not change the bits of fused trials if all trials have the same setting.
_EQUAL = {"autocast", "memory_format"}
#: A value that code reads: ``("params", "lr")``, ``("now", "lr")``, ``("attribute", "classes")``.
Read = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Structure:
    """A key: trials with equal structures may be fused in one process."""

    #: The key of the code, the network and the optimiser.
    network: Hashable
    #: The ``id`` of each data set, which is unique while the trials live.
    data: tuple[int, ...]
    #: The key of the values that ``loss`` and ``metrics`` are known to read.
    read: Hashable


def structure_of(run: Training, reads: Iterable[Read] = ()) -> Structure:
    """Return the structure of a trial; raise ``NotFused`` with the reason if it has none.

    ``reads`` names the values of a trial that code of its class is known to read.
    """
    _check(run)
    sets = [run.data.train, run.data.validation, run.data.test]
    code = run.code
    parameters = list(run.model.named_parameters(remove_duplicate=False))
    buffers = list(run.model.named_buffers(remove_duplicate=False))
    names = _names(parameters, buffers)
    overridden = type(code).clip is not TorchTrainable.clip
    network = (
        type(code),
        (run.batch_size, run.shards, code.eval_batch_size, overridden),
        tuple(sorted(item for item in run.system.items() if item[0] in _EQUAL)),
        _attributes(run.model),
        tuple(_shape(parameters)),
        tuple(_shape(buffers)),
        kind_of(run.optimizer, names),
        tuple(None if each is None else _extent(each) for each in sets),
    )
    if overridden:
        stepped = {id(p) for group in run.optimizer.param_groups for p in group["params"]}
        if any(p.requires_grad and id(p) not in stepped for _, p in parameters):
            raise NotFused("clip() sees gradients that the optimiser never clears")
    values = tuple((each, frozen(value_of(code, each), each[1])) for each in sorted(reads))
    return Structure(network, tuple(id(each) for each in sets), values)


def value_of(code: TorchTrainable, read: Read) -> Any:
    """Return the value that ``read`` names, or the class ``NotFused`` if ``code`` has none."""
    kind, name = read
    try:
        if kind == "params":
            return code.params[name]
        return code.now(name) if kind == "now" else vars(code)[name]
    except KeyError:
        return NotFused


def _attributes(model: nn.Module) -> Hashable:
    """Return the key of all modules; it is cached until an attribute becomes another object."""
    values = [value for each in model.modules() for value in looked_at(each)]
    cached_values, key = _KNOWN.get(model, ([], None))
    if len(cached_values) != len(values) or any(map(operator.is_not, cached_values, values)):
        key = tuple((n, attributes(each, n)) for n, each in model.named_modules())
        _KNOWN[model] = values, key
    return key


_KNOWN: WeakKeyDictionary[nn.Module, tuple[list[Any], Hashable]] = WeakKeyDictionary()


def _check(run: Training) -> None:
    if run.device.type == "cpu" and (threads := torch.get_num_threads()) != 1:
        raise NotFused(f"it computes with {threads} threads, and bits are only equal at one")
    if run.gang is not None:
        raise NotFused("it is trained on several devices")
    if run.shards > 1 and next(run.model.buffers(), None) is not None:
        raise NotFused("its batches are cut into shards, and what they make of buffers is summed")
    if run.statistical:
        raise NotFused("its study is statistical")
    if run.windows or run.meter is not None or run.counts == {}:
        raise NotFused("it is measured in this epoch")
    if knobs := sorted(set(run.system) - _HARMLESS - _EQUAL):
        raise NotFused(f"it has system parameters of its own: {', '.join(knobs)}")
    sets = (run.data.train, run.data.validation, run.data.test)
    if any(isinstance(each, Rows) for each in sets):
        raise NotFused("its encoder's activations fit neither into memory nor on the disk")
    if any(each is not None and in_memory(each) is None for each in sets):
        raise NotFused("its data is read example by example, and not from tensors")


def _names(
    parameters: Sequence[tuple[str, torch.Tensor]], buffers: Sequence[tuple[str, torch.Tensor]]
) -> dict[int, str]:
    """Return the names of the parameters by ``id``. Raises ``NotFused`` for unusual parameters."""
    for name, parameter in parameters:
        if type(parameter) is not nn.Parameter:
            raise NotFused(f"{name} is a {type(parameter).__name__}")
        if not (parameter.is_contiguous() or is_channels_last(parameter)):
            raise NotFused(f"{name} is not contiguous")
    names = {id(parameter): name for name, parameter in parameters}
    if len(names) != len(parameters) or len({id(each) for _, each in buffers}) != len(buffers):
        raise NotFused("modules share parameters or buffers")
    if not names:
        raise NotFused("the model has no parameters")
    return names


def _shape(named: Iterable[tuple[str, torch.Tensor]]) -> Iterable[Hashable]:
    for name, tensor in named:
        yield (
            name,
            tensor.dtype,
            tuple(tensor.shape),
            tensor.requires_grad,
            is_channels_last(tensor),
        )


def _extent(data: Dataset[Any]) -> Hashable:
    tensors = in_memory(data) or ()
    return length(data), tuple((each.dtype, tuple(each.shape[1:])) for each in tensors)


def frozen(value: Any, where: str) -> Hashable:
    """Return the key of ``value``; raise ``NotFused``, which names ``where``, if it has none."""
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
    """Return the key of a module without parameters and buffers, such as a loss."""
    if next(module.parameters(), None) is not None or next(module.buffers(), None) is not None:
        raise NotFused(f"{where} is a module with parameters or buffers of its own")
    return tuple((name, attributes(each, where)) for name, each in module.named_modules())


#: Names of torch's own attributes of a module. ``training`` is set again in every epoch.
_MACHINERY = frozenset(vars(nn.Module())) | {"_compiled_call_impl"}
_HOOKS = tuple(name for name in sorted(_MACHINERY) if name.endswith("_hooks"))


def attributes(module: nn.Module, where: str) -> Hashable:
    """Return the key of a module's class and its attributes other than tensors and submodules."""
    module_name = f"{where or 'the model'} ({type(module).__name__})"
    if any(vars(module).get(name) for name in _HOOKS):
        raise NotFused(f"{module_name} has hooks")
    if isinstance(module, nn.RNNBase):
        raise NotFused(f"{module_name} is recurrent, for which there is no rule")
    if vars(module).get("_compiled_call_impl") is not None:
        raise NotFused(f"{module_name} is compiled")
    varying = {"p"} if type(module) is nn.Dropout else set()
    own = sorted(vars(module).keys() - _MACHINERY - varying - chosen(module))
    return type(module), tuple((n, frozen(vars(module)[n], f"{module_name}.{n}")) for n in own)


def looked_at(module: nn.Module) -> list[Any]:
    """Return the objects of a module to compare by identity: class, hook flags, attributes."""
    own = vars(module)
    hooked = any(own[name] for name in _HOOKS if name in own)
    own_attributes = [each for item in own.items() if item[0] not in _MACHINERY for each in item]
    return [type(module), hooked, own.get("_compiled_call_impl"), *own_attributes]


def chosen(module: nn.Module) -> set[str]:
    """Return the names of attributes that hold a trial's choices for a module.

    Structures leave them out, since a choice also shows in the module's submodules.
    """
    own_attributes = vars(module).items()
    return {name for name, value in own_attributes if getattr(type(value), "told_by_parts", False)}
