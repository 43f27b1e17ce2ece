"""An epoch's metrics: the mean of its steps' losses, and means over validation and test data.

Theory of operation. A mean is over examples, whatever the batches are, and is summed in double
precision, so that it does not depend on how an evaluation is cut into batches. Nothing is read from
the device before everything has been computed. Evaluation draws from keys of its own and changes no
state.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import Dataset

from ...base.errors import TrialFailed, UsageError
from ...base.wording import worded
from ..contracts.rng import key
from .data import by_rows, length, read
from .one_pass import OnePass
from .seeding import seed_phase

if TYPE_CHECKING:
    from torch import Tensor

    from .training import Training

#: Number of losses that are kept before they are summed. Summing each at once costs 30 us per step.
FOLD = 256


class MeanLoss:
    """The mean loss over the examples of an epoch, from the mean losses of its batches."""

    def __init__(self) -> None:
        self._by_size: defaultdict[int, list[Tensor]] = defaultdict(list)

    def add(self, loss: Tensor, examples: int) -> None:
        """Add the detached loss of a batch."""
        if loss.untyped_storage().nbytes() > loss.element_size():
            loss = loss.clone()  # torch's mse_loss keeps memory for a value of each element
        losses = self._by_size[examples]
        losses.append(loss)
        if len(losses) == FOLD:
            losses[:] = [torch.stack(losses).double().sum()]

    def value(self, examples: int) -> float:
        """Return the mean loss over all batches that were added, ``examples`` examples in total."""
        sums = (n * float(torch.stack(of).double().sum()) for n, of in self._by_size.items())
        return sum(sums) / examples


def metered(run: Training, i: int) -> AbstractContextManager[Any]:
    """Return the context that meters step ``i`` of an epoch or batch ``i`` of an evaluation."""
    return nullcontext() if run.meter is None else run.meter.around(i)


def evaluate(run: Training, part: str, data: Dataset[Any]) -> dict[str, float]:
    """Return the means of the metrics over ``data``, and for validation data that of ``loss``."""
    code, model = run.code, run.model
    examples = length(data)
    names = (run.seed, run.number, run.epoch)
    batches = torch.split(torch.arange(examples), code.eval_batch_size)
    share = range(len(batches)) if run.gang is None else run.gang.share(len(batches))
    parts = batches[share.start : share.stop]
    keys = [key(f"read {part}", *names, i) for i in share]
    last = run.system.channels_last
    batch_of = read(data, parts, keys, run.device, channels_last=last, batches_of_all=run.batches)
    seeded = by_rows(data) is None  # reading example by example seeds torch
    rows: list[tuple[dict[str, Any], int]] = []

    seed_phase(run.device, part, *names)
    model.eval()
    if run.meter is not None:
        run.meter.evaluating()
    computing = run.system.computing(run.device)
    with torch.no_grad():
        for i in share:
            run.pass_turn(training=False)
            with metered(run, i - share.start):
                batch, size = next(batch_of)
                if run.shards > 1 or seeded:  # members draw only for the batches they have
                    seed_phase(run.device, part, *names, i)
                with computing:  # data is read outside, as in training
                    if part == "validation":
                        if run.one_pass is None or run.one_pass.model is not model:
                            run.one_pass = OnePass(model, code)
                        values = run.one_pass.values(code, batch)
                    else:
                        values = dict(code.metrics(model, batch))
                rows.append(({str(n): _wide(n, value) for n, value in values.items()}, size))
    if run.gang is not None:
        plain = [({name: float(v) for name, v in row.items()}, size) for row, size in rows]
        rows = run.gang.collect(plain)
    totals: dict[str, Any] = dict.fromkeys(rows[0][0], 0.0)
    for values, size in rows:
        if totals.keys() != values.keys():
            raise TrialFailed(
                "metric",
                f"metrics() returned {sorted(values)}, and {sorted(totals)} for an earlier batch:"
                " return the same names for each batch",
            )
        for name, value in values.items():
            totals[name] = totals[name] + value * size
    return {name: float(total) / examples for name, total in totals.items()}


def _wide(name: object, value: Tensor | float) -> Tensor | float:
    try:
        if not isinstance(value, torch.Tensor):
            return float(value)
        if value.numel() == 1:
            return value.detach().double()
    except (TypeError, ValueError, OverflowError):
        pass
    field = f"metrics()[{worded(name)}]"
    raise UsageError.refuse(field, value, "a number or a tensor of one number")
