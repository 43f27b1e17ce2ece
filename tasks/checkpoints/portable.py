"""Convert a user's checkpoint to the form in the store, and back: values only, so no pickle.

The store keeps tensors, numbers, texts and collections of them, read with ``weights_only=True``.
NumPy arrays are stored as tensors, with a list of their places; NumPy scalars become Python
numbers. Tensors come back on the CPU, and the keys of a dict come back sorted.
"""

from __future__ import annotations

import sys
from collections import Counter, OrderedDict
from typing import Any

import torch

from ...base.errors import UsageError

ALLOWED = (
    "tensors, NumPy arrays of numbers, numbers, texts, bytes, None, and lists, tuples and dicts of "
    "them (dicts by texts or whole numbers)"
)
#: The only classes allowed for plain values: an instance of a subclass would come back as another
#: class.
_PLAIN = (type(None), bool, int, float, str, bytes)
_DICTS = (dict, OrderedDict, Counter)  # state_dict() gives the second, some schedules the third
_TENSORS = (torch.Tensor, torch.nn.Parameter)

Path = tuple[int | str, ...]


def pack(checkpoint: object) -> dict[str, Any]:
    """Return ``checkpoint`` in the form that the store keeps. Tensors are not copied.

    Raises ``UsageError``, which names the key of a value that cannot be kept.
    """
    if type(checkpoint) not in _DICTS or not checkpoint:
        text = type(checkpoint).__name__ if checkpoint else repr(checkpoint)
        raise UsageError(f"checkpoint = {text} is refused: allowed is a dict that is not empty")
    arrays: list[list[int | str]] = []
    return {"tree": _packed(checkpoint, (), arrays), "arrays": arrays}


def unpack(state: dict[str, Any]) -> dict[str, Any]:
    """Return the checkpoint from which ``pack`` made ``state``."""
    tree: dict[str, Any] = _unpacked(state["tree"], (), {tuple(path) for path in state["arrays"]})
    return tree


def _packed(value: Any, path: Path, arrays: list[list[int | str]]) -> Any:
    if type(value) in _PLAIN:
        return value
    if type(value) in _DICTS:
        packed = type(value)()
        for name, item in value.items():
            if type(name) not in (str, int):
                raise _refusal(path, f"has the key {name!r}")
            packed[name] = _packed(item, (*path, name), arrays)
        return packed
    if isinstance(value, list | tuple):
        items = [_packed(item, (*path, i), arrays) for i, item in enumerate(value)]
        return tuple(items) if isinstance(value, tuple) else items
    if type(value) in _TENSORS:
        if value.layout is not torch.strided or value.is_quantized or value.is_meta:
            raise _refusal(path, "is a tensor that is sparse, quantized or without data")
        return value.detach()
    numpy = sys.modules.get("numpy")
    if numpy is not None and type(value) is numpy.ndarray:  # a masked one would lose its mask
        try:
            # In the machine's byte order, dense and writable, as torch requires.
            tensor = torch.from_numpy(numpy.array(value, value.dtype.newbyteorder("="), order="C"))
        except TypeError:
            raise _refusal(path, f"is an array of {value.dtype}") from None
        arrays.append([*path])
        return tensor
    if numpy is not None and isinstance(value, numpy.generic) and type(value.item()) in _PLAIN:
        return value.item()
    raise _refusal(path, f"is a {type(value).__module__}.{type(value).__qualname__}")


def _unpacked(value: Any, path: Path, arrays: set[Path]) -> Any:
    if isinstance(value, dict):
        for name, item in value.items():
            value[name] = _unpacked(item, (*path, name), arrays)
        return value
    if isinstance(value, list | tuple):
        items = [_unpacked(item, (*path, i), arrays) for i, item in enumerate(value)]
        return tuple(items) if isinstance(value, tuple) else items
    return value.numpy() if path in arrays else value


def _refusal(path: Path, what: str) -> UsageError:
    where = "".join(f"[{name!r}]" for name in path)
    return UsageError(f"checkpoint{where} {what}, which is refused: allowed are {ALLOWED}")
