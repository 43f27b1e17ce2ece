"""The bytes and the memory layout of a model's tensors, in order to hash, send and compare them."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn


def bytes_of(tensor: Tensor) -> Tensor:
    """Return the tensor's bytes in index order, as a 1-D uint8 tensor: its memory, or a copy."""
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def same_bits(one: Tensor, other: Tensor) -> bool:
    """Return True if both have the same dtype, shape and bytes."""
    alike = one.dtype == other.dtype and one.shape == other.shape
    return alike and torch.equal(bytes_of(one), bytes_of(other))


def is_channels_last(tensor: Tensor) -> bool:
    """Return True if the tensor's memory is channels-last, and not contiguous as well."""
    last = tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last)
    return last and not tensor.is_contiguous()


def held(model: nn.Module) -> Iterator[Tensor]:
    """Yield all tensors of the model's modules: parameters, buffers and plain attributes."""
    yield from model.parameters()
    yield from model.buffers()
    for module in model.modules():
        yield from (each for each in vars(module).values() if isinstance(each, torch.Tensor))
