"""The bits of a training state: their hash, a copy of them, their canonical form."""

from __future__ import annotations

import copy
import struct
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import xxhash

if TYPE_CHECKING:
    from torch import Tensor


def state_hash(state: Any) -> str:
    """Return the XXH3 (32 hex digits) of a tree of dicts, sequences, tensors and plain values.

    Hashes are equal exactly when all types, shapes and bits are equal. The order of keys does not
    count, since loading a checkpoint may change it. Raises ``TypeError`` for a value that has no
    stable bits.

    This is not a cryptographic hash. Such a hash takes several times as long, and every epoch waits
    for the state hash. A state hash detects accidental differences between computations of one
    trial, which nobody makes collide on purpose. Where a hash must be trusted, another one is used:
    files in the store are named by SHA-256, and messages are signed by HMAC.
    """
    digest = xxhash.xxh3_128()
    _feed(digest.update, state)
    return digest.hexdigest()


def _feed(update: Any, value: Any) -> None:
    match value:
        case torch.Tensor():
            update(f"t{value.dtype}{tuple(value.shape)}".encode())
            # A NumPy view of the tensor's own bytes: on a CPU nothing is copied.
            update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
        case None | bool() | int() | str() | bytes():
            text = value if isinstance(value, bytes) else str(value).encode()
            update(b"%s%d:" % (type(value).__name__.encode(), len(text)))
            update(text)
        case float():
            update(b"f" + struct.pack("<d", value))
        case dict():
            update(b"d%d:" % len(value))
            for name in sorted(value, key=_order):
                _feed(update, name)
                _feed(update, value[name])
        case list() | tuple():
            update(b"l%d:" % len(value))
            for item in value:
                _feed(update, item)
        case _:
            raise TypeError(
                f"the training state holds a {type(value).__qualname__}, which has no stable"
                " bytes: keep only numbers, strings, tensors, lists and dicts in optimiser and"
                " schedule"
            )


def _order(name: Any) -> tuple[str, Any]:
    return type(name).__name__, name


def map_tensors(value: Any, change: Callable[[Tensor], Any]) -> Any:
    """Return ``value`` with every tensor replaced, in an order that depends only on the structure.

    Dicts, lists and tuples are new; nothing else is copied.
    """
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, dict):
        mapped = copy.copy(value)  # the same kind of dict: schedules keep Counters
        for name, item in value.items():
            mapped[name] = map_tensors(item, change)
        return mapped
    if isinstance(value, list):
        return [map_tensors(item, change) for item in value]
    if isinstance(value, tuple):
        return tuple(map_tensors(item, change) for item in value)
    return value


def tensors_of(value: Any) -> list[Tensor]:
    """Return all tensors in a state, in the order of ``map_tensors``."""
    tensors: list[Tensor] = []
    map_tensors(value, tensors.append)
    return tensors


def copy_state(value: Any) -> Any:
    """Return a deep copy with all tensors on the CPU. Training can continue while it is used."""
    return map_tensors(value, lambda tensor: tensor.detach().to("cpu", copy=True))


def copy_on_device(value: Any) -> Any:
    """Return a deep copy with each tensor on its own device.

    Optimisers and schedules keep the tensors and lists that they are given, so they need a copy.
    """
    return map_tensors(value, lambda tensor: tensor.detach().clone())


def canonical(value: Any) -> Any:
    """Return the canonical form of ``value``: equal state hashes have equal pickled bytes.

    Pickle writes keys in insertion order and a repeated object as a reference, and torch writes the
    whole storage behind a view. Therefore keys are sorted, equal texts are one object (interned, as
    the names that torch itself adds are), every other value is an object of its own, and tensors
    are dense. Dicts keep their class. Tensors that are dense already are not copied.
    """
    match value:
        case torch.Tensor():
            return _dense(value)
        case str():
            return sys.intern(value) if type(value) is str else value
        case bytes():
            return bytes(bytearray(value))  # never the same object twice
        case dict():
            ordered = copy.copy(value)  # the same kind of dict: schedules keep Counters
            ordered.clear()
            for name in sorted(value, key=_order):
                ordered[canonical(name)] = canonical(value[name])
            for name, hung in getattr(ordered, "__dict__", {}).items():
                setattr(ordered, name, canonical(hung))  # a module's _metadata
            return ordered
        case list() | tuple():
            items = [canonical(item) for item in value]
            return items if isinstance(value, list) else tuple(items)
    return value


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    """Return ``tensor`` on the CPU, with a storage of its own and default strides."""
    dense = tensor.detach().cpu().contiguous()
    if dense.untyped_storage().nbytes() != dense.nbytes:
        dense = dense.clone()
    strides, step = [], 1
    for size in reversed(dense.shape):
        strides.append(step)
        step *= max(1, size)
    # For dimensions of one element, and for an empty tensor's offset, torch keeps the old values.
    return dense.as_strided(dense.shape, strides[::-1], 0)


def state_bytes(value: Any) -> int:
    """Return the bytes of all tensors in a state."""
    return sum(tensor.nbytes for tensor in tensors_of(value))
