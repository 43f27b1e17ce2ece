"""Tensors of several trials in one memory: a row a trial, and views of it under the old names.

Theory of operation. The tensors of a trial lie one behind the other in its row, each at a multiple
of 64 bytes, as torch's own allocations do. So what is computed elementwise is one operation for all
tensors of all trials. A tensor of all trials, such as one layer's weights, is a view of columns. A
trial's own parameters are views of its row, so that the trial is whole at any step.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from ...tasks.system.tensor_bytes import is_channels_last

if TYPE_CHECKING:
    from torch import Tensor

    from ...tasks.training.training import Training

_ALIGNED = 64


class Stack:
    """Copies of tensors of K trials, which have the same shapes in the same order."""

    def __init__(
        self, rows: Sequence[Sequence[Tensor]], like: Sequence[Tensor] | None = None
    ) -> None:
        """``like``: tensors in whose memory formats those of the same shape are; by default a
        trial's own.
        """
        #: (K, N) by dtype, and the column behind each tensor and what fills its last 64 bytes.
        self.flats: dict[torch.dtype, Tensor] = {}
        self.ends: list[int] = []
        sizes: dict[torch.dtype, int] = {}
        for tensor in rows[0]:
            unit = _ALIGNED // tensor.element_size()
            sizes.setdefault(tensor.dtype, 0)
            sizes[tensor.dtype] += -(-tensor.numel() // unit) * unit
            self.ends.append(sizes[tensor.dtype])
        for dtype, size in sizes.items():
            device = next(each.device for each in rows[0] if each.dtype == dtype)
            self.flats[dtype] = torch.zeros(len(rows), size, dtype=dtype, device=device)
        #: (K, ...) for each tensor, and each trial's own.
        formats = rows[0] if like is None else like
        self.stacked = [
            self._columns(tensor, end, each)
            for tensor, end, each in zip(rows[0], self.ends, formats, strict=True)
        ]
        self.rows = _by_trial(self.stacked, len(rows))
        with torch.no_grad():
            for views, tensors in zip(self.rows, rows, strict=True):
                torch._foreach_copy_(views, list(tensors))

    def part(self, of: slice) -> Stack:
        """Return the stack of a slice of the trials, in the same memory."""
        stack = copy.copy(self)
        stack.flats = {dtype: flat[of] for dtype, flat in self.flats.items()}
        stack.stacked = [each[of] for each in self.stacked]
        stack.rows = self.rows[of]
        return stack

    def _columns(self, tensor: Tensor, end: int, like: Tensor) -> Tensor:
        unit = _ALIGNED // tensor.element_size()
        begin = end - -(-tensor.numel() // unit) * unit
        flat = self.flats[tensor.dtype]
        columns = flat[:, begin : begin + tensor.numel()]
        if is_channels_last(like) and like.shape == tensor.shape:
            n, c, h, w = tensor.shape
            return columns.view(len(flat), n, h, w, c).permute(0, 1, 4, 2, 3)
        return columns.view(len(flat), *tensor.shape)


def batch_of(tensors: Sequence[Tensor], part: Tensor, run: Training) -> tuple[Tensor, ...]:
    """Return the examples of ``part``, (B,), or of each trial's, (K, B), where ``run`` computes.

    They are in the memory format in which it reads them.
    """
    batch = tuple(each[part.to(each.device)].to(run.device) for each in tensors)
    if not run.system.channels_last:
        return batch
    return tuple(
        examples.movedim(-3, -1).contiguous().movedim(-1, -3) if each.dim() == 4 else examples
        for examples, each in zip(batch, tensors, strict=True)
    )


def _by_trial(stacked: Sequence[Tensor], count: int) -> list[list[Tensor]]:
    columns = [each.unbind(0) for each in stacked]  # which may not be changed where gradients are
    return [[each[k].detach() for each in columns] for k in range(count)]


def put(tensors: Sequence[Tensor], views: Sequence[Tensor]) -> None:
    """Make the memory of ``views``, which has the same values, that of ``tensors``."""
    for tensor, view in zip(tensors, views, strict=True):
        tensor.data = view


def unalias(tensors: Sequence[Tensor], views: Sequence[Tensor]) -> None:
    """Give ``tensors`` memory of their own, where they still have that of ``views``."""
    for tensor, view in zip(tensors, views, strict=False):
        if tensor.data_ptr() == view.data_ptr():
            tensor.data = view.clone()


def are_in(tensors: Sequence[Tensor], views: Sequence[Tensor]) -> bool:
    """Return True if ``tensors`` still have the memory of ``views``."""
    return len(tensors) == len(views) and all(
        one.data_ptr() == other.data_ptr() and one.shape == other.shape
        for one, other in zip(tensors, views, strict=True)
    )
