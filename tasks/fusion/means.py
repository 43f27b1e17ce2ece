"""The mean losses of all trials over an epoch, with the bits of ``tasks.training.MeanLoss``."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..training.evaluation import FOLD


def mean_losses(losses: Sequence[Tensor], size: int, examples: int) -> list[float]:
    """From the losses (K,) of each step, in batches of ``size``; the last may be smaller."""
    last = examples - size * (len(losses) - 1)
    parts = [(size, losses)] if last == size else [(size, losses[:-1]), (last, losses[-1:])]
    sums = [(n, _sums(of)) for n, of in parts if of]
    return [sum(n * of[k] for n, of in sums) / examples for k in range(len(losses[0]))]


def _sums(losses: Sequence[Tensor]) -> list[float]:
    """The sum of each trial, in double precision; of many, those before count as one."""
    rows = torch.stack(list(losses), 1).double()
    while rows.shape[1] >= FOLD:
        rows = torch.cat([rows[:, :FOLD].contiguous().sum(1, keepdim=True), rows[:, FOLD:]], 1)
    made: list[float] = rows.sum(1).tolist()
    return made
