"""Evaluates all trials of a group at once, and reads each batch only once.

Theory of operation. Sums are made in double precision, batch by batch, as in
``tasks.training.evaluation``. In the first evaluations of a structure, all trials are evaluated
alone as well, and the results are compared. Later, one batch of one trial, chosen by a key, is
evaluated alone and compared.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ...tasks.contracts.rng import key
from ...tasks.training.data import in_memory, length
from ...tasks.training.evaluation import FOLD
from ...tasks.training.seeding import generators
from .checks import Mismatch, check_generators
from .operators.not_fused import NotFused
from .stacks import batch_of
from .stand_in import Common, stand_in

if TYPE_CHECKING:
    from torch.utils.data import Dataset

    from ...tasks.contracts.contract import TorchTrainable
    from ...tasks.training.training import Training
    from .group import Group

#: Modules that compute in another way if there are no gradients and no dispatch mode sees their
#: operators. The bits are nearly always the same, so a comparison of a few batches proves nothing.
_SHORT_CUTS = (nn.MultiheadAttention, nn.TransformerEncoder, nn.TransformerEncoderLayer)
#: Metrics by name: a value for each trial, or one number for all.
_Values = dict[str, Tensor | float]


def evaluate_all(group: Group, part: str, data: Dataset[Any]) -> list[dict[str, float]]:
    """Return each trial's mean metrics over ``data``, as ``evaluate`` does.

    Raises ``NotFused``, and anything that the user's code raises.
    """
    first = group.runs[0]
    if any(isinstance(module, _SHORT_CUTS) for module in group.model.modules()):
        raise NotFused("its attention takes a short cut in evaluation, but not for all at once")
    common = Common([run.code for run in group.runs])
    code = stand_in(common, type(first.code))
    examples, names = length(data), (first.seed, first.number, first.epoch)
    parts = torch.split(torch.arange(examples), first.code.eval_batch_size)
    checked_batch = key(f"fused {part} batch", *names) % len(parts)
    k = key(f"fused {part} trial", *names) % len(group.runs)
    group.model.eval()
    group.generators.begin(_no_random_numbers)
    totals: _Values = {}
    before = generators()
    with torch.no_grad():
        for i, indices in enumerate(parts):
            batch = batch_of(in_memory(data) or (), indices, first)
            values = _values(group, code, part, batch)
            if i == checked_batch:
                row_values = {n: v[k] if isinstance(v, Tensor) else v for n, v in values.items()}
                _compare(group.runs[k], part, batch, row_values)
            if totals and totals.keys() != values.keys():
                raise NotFused("metrics() has other names from batch to batch")
            for name, value in values.items():
                totals[name] = totals.get(name, 0.0) + value * len(indices)
    common.check_unchanged()
    check_generators(before)
    lists = {n: v.tolist() if isinstance(v, Tensor) else v for n, v in totals.items()}
    return [
        {n: (v[k] if isinstance(v, list) else v) / examples for n, v in lists.items()}
        for k in range(len(group.runs))
    ]


def _no_random_numbers() -> Sequence[int]:
    raise NotFused("it draws random numbers in evaluation")


def _values(group: Group, code: TorchTrainable, part: str, batch: tuple[Tensor, ...]) -> _Values:
    common: _Values = {}

    def tensors(model: nn.Module, batch: tuple[Tensor, ...]) -> dict[str, Tensor]:
        values = _metrics(code, model, part, batch)
        common.update({n: v for n, v in values.items() if not isinstance(v, Tensor)})
        return {name: value for name, value in values.items() if isinstance(value, Tensor)}

    by_trial = group.call(tensors, batch, common=True)
    result: _Values = {}
    for name in [*by_trial, *common]:
        value = by_trial.get(name, common.get(name))
        if isinstance(value, Tensor):
            result[name] = value.double().reshape(len(group.runs))
        else:
            result[name] = float(value)
    return result


def _metrics(
    code: TorchTrainable, model: nn.Module, part: str, batch: tuple[Tensor, ...]
) -> dict[str, Any]:
    values = dict(code.metrics(model, batch))
    if part == "validation" and "loss" not in values:
        values["loss"] = code.loss(model, batch)
    return {str(name): value for name, value in values.items()}


def _compare(run: Training, part: str, batch: tuple[Tensor, ...], fused: _Values) -> None:
    run.model.eval()
    with run.system.computing(run.device):
        alone = _metrics(copy.copy(run.code), run.model, part, batch)
    both = [{name: float(value) for name, value in each.items()} for each in (alone, fused)]
    if not same_numbers(*both):
        raise Mismatch("a metric had other bits together than alone")


def same_numbers(one: dict[str, float], other: dict[str, float]) -> bool:
    """Return True if both have the same names, and values with the same bits."""
    bits = [{name: value.hex() for name, value in each.items()} for each in (one, other)]
    return bits[0] == bits[1]


def mean_losses(losses: Sequence[Tensor], size: int, examples: int) -> list[float]:
    """Return each trial's mean loss over an epoch, given the losses (K,) of each step.

    All batches have ``size`` examples, but the last one may be smaller.
    """
    last = examples - size * (len(losses) - 1)
    parts = [(size, losses)] if last == size else [(size, losses[:-1]), (last, losses[-1:])]
    sums = [(n, _sums(of)) for n, of in parts if of]
    return [sum(n * of[k] for n, of in sums) / examples for k in range(len(losses[0]))]


def _sums(losses: Sequence[Tensor]) -> list[float]:
    """Return each trial's sum of losses in double precision; many losses are added in blocks."""
    rows = torch.stack(list(losses), 1).double()
    while rows.shape[1] >= FOLD:
        rows = torch.cat([_added(rows[:, :FOLD]), rows[:, FOLD:]], 1)
    totals: list[float] = _added(rows)[:, 0].tolist()
    return totals


def _added(rows: Tensor) -> Tensor:
    """Return the sum of each row as (K, 1)."""
    if rows.is_cuda:  # where the order in which a row is summed depends on the number of rows
        return torch.stack([row.contiguous().sum() for row in rows.unbind(0)]).unsqueeze(1)
    return rows.contiguous().sum(1, keepdim=True)
