"""Traces a trial's memory before the trial runs: its first steps and an evaluation on fake tensors.

Theory of operation. The trial's double (``fake_trial``) goes through two steps, since an optimiser
has all its state only after the first, and through two batches of the validation data. A tracker
(``storages``) sees every storage that is made or freed meanwhile. No values are computed, so large
tensors take no longer than small ones: PyTorch works out only the shapes, in about 0.1 ms for each
operator.

A super-net trains another path in each step, so the double's steps take the heaviest paths
(``heaviest_paths``). A trial that is a candidate of a super-net is only evaluated, not trained.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from ....base.footprint import Footprint
from ....tasks.system.tensor_bytes import held
from ....tasks.training import loop
from ....tasks.training.data import length
from ....tasks.training.evaluation import evaluate
from .allocator import peak_bytes, reserved_bytes
from .fake_trial import double, fake_optimizer
from .heaviest_paths import HeaviestPaths
from .storages import StorageTracker, held_beside, persistent, state_of

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from ....tasks.training.training import Training
    from .allocator import Change

#: Number of steps that a double trains.
STEPS = 2


@dataclass(frozen=True, slots=True)
class Allocated:
    """The allocations and frees of a double's steps and evaluation, in order.

    ``recurrent`` is True if the model has recurrent layers, whose memory is less certain.
    """

    changes: list[Change]
    persistent: int
    recurrent: bool


def trace(run: Training, examples: Mapping[int, Any] | None = None) -> tuple[Footprint, bool]:
    """Return the memory need of ``run``, and True if it has recurrent layers; see ``allocated``."""
    allocation = allocated(run, examples)
    peak = peak_bytes(allocation.changes)
    reserved = reserved_bytes(allocation.changes) if run.device.type == "cuda" else peak
    return Footprint(
        allocation.persistent, peak - allocation.persistent, reserved
    ), allocation.recurrent


def allocated(run: Training, examples: Mapping[int, Any] | None = None) -> Allocated:
    """Train and evaluate the double of ``run``, which must be as before its first epoch.

    ``examples`` is as for ``double``. Call this in a separate process, because afterwards the
    random generators have changed, and the user's objects may hold fake tensors. Raises anything
    that the user's code raises, or that torch raises if shapes depend on values.
    """
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    fake = double(run, mode, examples or {})
    tracker = StorageTracker(cpu=run.device.type == "cpu")
    other_tensors = list(held_beside(fake.code, fake.model))
    search = HeaviestPaths(fake.model, tracker)
    with mode:
        fake.optimizer = fake_optimizer(run, fake)
        if search.of_one:
            _make_all_state(fake.optimizer)
    with mode, tracker:
        tracker.hold(held(fake.model))
        tracker.hold(other_tensors)
        tracker.hold(state_of(fake.optimizer))
        if fake.instead is None:
            _train(fake, search)
        else:
            with suppress(_Enough):
                fake.instead(fake, _two_steps)
        evaluate(fake, "validation", fake.data.validation)
    recurrent = tracker.recurrent or _is_recurrent(run)
    stays = persistent(fake.model, fake.optimizer, *other_tensors)
    return Allocated(list(tracker.changes), stays, recurrent)


class _Enough(Exception):
    """Raised to end training: more steps would need no more memory."""


def _two_steps(epoch: int, step: int, steps: int) -> None:
    if step > STEPS:
        raise _Enough


def _train(fake: Training, search: HeaviestPaths) -> None:
    """Train the double for two steps, after the steps that find a super-net's heaviest paths."""
    whole = max(1, length(fake.data.train) // fake.batch_size)  # batches of an epoch
    for first in range(0, search.steps + STEPS, whole):
        steps = min(whole, search.steps + STEPS - first)
        list(loop.time_steps(fake, steps, search.begin_step))


def _make_all_state(optimizer: Optimizer) -> None:
    """Make the optimiser's state of all parameters, which a super-net's steps make path by path."""
    for group in optimizer.param_groups:
        for each in group["params"]:
            each.grad = torch.zeros_like(each) if each.requires_grad else None
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def _is_recurrent(run: Training) -> bool:
    return any(isinstance(each, torch.nn.RNNBase) for each in run.model.modules())
