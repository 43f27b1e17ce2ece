"""Tensors as their bytes: to hash them, to send them, and to compare them bit for bit."""

from __future__ import annotations

import torch
from torch import Tensor


def bytes_of(tensor: Tensor) -> Tensor:
    """Its bytes in the order of its indices, as uint8: its own memory, or a contiguous copy."""
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def same_bits(one: Tensor, other: Tensor) -> bool:
    """Whether both have one dtype, one shape and the same bytes."""
    alike = one.dtype == other.dtype and one.shape == other.shape
    return alike and torch.equal(bytes_of(one), bytes_of(other))
