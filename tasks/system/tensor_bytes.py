"""The tensors of a model, and tensors as their bytes: to hash, to send, and to compare them."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn


def bytes_of(tensor: Tensor) -> Tensor:
    """Its bytes in the order of its indices, as uint8: its own memory, or a contiguous copy."""
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def same_bits(one: Tensor, other: Tensor) -> bool:
    """Whether both have one dtype, one shape and the same bytes."""
    alike = one.dtype == other.dtype and one.shape == other.shape
    return alike and torch.equal(bytes_of(one), bytes_of(other))


def held(model: nn.Module) -> Iterator[Tensor]:
    """All tensors that the model's modules have, also those that are no buffers."""
    yield from model.parameters()
    yield from model.buffers()
    for module in model.modules():
        yield from (each for each in vars(module).values() if isinstance(each, torch.Tensor))
