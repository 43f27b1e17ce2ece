"""Tensors of several trials in one block of memory: a row for each trial, and views of the rows.

Theory of operation. The tensors of a trial lie one after the other in the trial's row, each at a
multiple of 64 bytes, as torch's own allocations do. So an elementwise computation is one operation
for all tensors of all trials. One tensor of all trials, such as a layer's weights, is a view of
columns. A trial's own parameters are views of its row, so the trial's state is complete after any
step.
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
    """Copies of the tensors of K trials. Each trial has the same shapes in the same order."""

    def __init__(
        self, rows: Sequence[Sequence[Tensor]], like: Sequence[Tensor] | None = None
    ) -> None:
        """Copy the tensors of each of ``rows``, in the memory formats of ``like``.

        By default ``like`` is the first of ``rows``.
        """
        #: The whole memory (K, N), by dtype, and the end column of each tensor with its padding.
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
        #: A view (K, ...) for each tensor, and the list of views for each trial.
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
        """Return the stack of the trials ``of``, in the same memory."""
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
    """Return the examples with the indices ``part`` on the device of ``run``.

    ``part`` is (B,), or (K, B) with the indices of each trial. The memory format of the examples is
    the one that ``run`` reads.
    """
    batch = tuple(each[part.to(each.device)].to(run.device) for each in tensors)
    if not run.system.channels_last:
        return batch
    return tuple(
        examples.movedim(-3, -1).contiguous().movedim(-1, -3) if each.dim() == 4 else examples
        for examples, each in zip(batch, tensors, strict=True)
    )


def _by_trial(stacked: Sequence[Tensor], count: int) -> list[list[Tensor]]:
    columns = [each.unbind(0) for each in stacked]  # autograd forbids changing these in place
    return [[each[k].detach() for each in columns] for k in range(count)]


def put(tensors: Sequence[Tensor], views: Sequence[Tensor]) -> None:
    """Make ``tensors`` use the memory of ``views``, which has the same values."""
    for tensor, view in zip(tensors, views, strict=True):
        tensor.data = view


def unalias(tensors: Sequence[Tensor], views: Sequence[Tensor]) -> None:
    """Give each of ``tensors`` that still uses the memory of ``views`` memory of its own."""
    for tensor, view in zip(tensors, views, strict=False):
        if tensor.data_ptr() == view.data_ptr():
            tensor.data = view.clone()


def are_in(tensors: Sequence[Tensor], views: Sequence[Tensor]) -> bool:
    """Return True if all ``tensors`` still use the memory of ``views``."""
    return len(tensors) == len(views) and all(
        one.data_ptr() == other.data_ptr() and one.shape == other.shape
        for one, other in zip(tensors, views, strict=True)
    )
