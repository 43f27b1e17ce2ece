"""A trial's memory before it has run: its first steps and an evaluation, on fake tensors.

Theory of operation. The trial's double (``fake_trial``) goes through two steps, since an optimiser
has all its state only after the first, and through two batches of the validation data. A tracker
(``storages``) sees every storage that is made or freed on the way. Nothing is
computed, so a step of the largest model takes as long as one of the smallest: what PyTorch needs
for its operators' shapes, some 0.1 ms each.

A super-net trains another path in each step, so its steps take the heaviest ones
(``heaviest_paths``). A candidate of one is evaluated, and not trained.
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

    ``recurrent``: True if the model has recurrent layers, whose memory is less certain.
    """

    changes: list[Change]
    persistent: int
    recurrent: bool


def trace(run: Training, examples: Mapping[int, Any] | None = None) -> tuple[Footprint, bool]:
    """Return the need of ``run``, and True if it has recurrent layers; see ``allocated``."""
    allocation = allocated(run, examples)
    peak = peak_bytes(allocation.changes)
    reserved = reserved_bytes(allocation.changes) if run.device.type == "cuda" else peak
    return Footprint(
        allocation.persistent, peak - allocation.persistent, reserved
    ), allocation.recurrent


def allocated(run: Training, examples: Mapping[int, Any] | None = None) -> Allocated:
    """Train and evaluate the double of ``run``, which must be as before its first epoch.

    ``examples``: as for ``double``. Random generators are left as they come out, and the user's
    objects may hold fake tensors afterwards, so call it in a process of its own. Raises whatever
    torch and the user's code raise where shapes depend on values.
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
    """More steps need no more memory."""


def _two_steps(epoch: int, step: int, steps: int) -> None:
    if step > STEPS:
        raise _Enough


def _train(fake: Training, search: HeaviestPaths) -> None:
    """Train the double for two steps, and for those before that find a super-net's paths."""
    whole = max(1, length(fake.data.train) // fake.batch_size)  # batches of an epoch
    for first in range(0, search.steps + STEPS, whole):
        steps = min(whole, search.steps + STEPS - first)
        list(loop.time_steps(fake, steps, search.begin_step))


def _make_all_state(optimizer: Optimizer) -> None:
    """Have the state made of all parameters: those of a super-net get theirs one path at a time."""
    for group in optimizer.param_groups:
        for each in group["params"]:
            each.grad = torch.zeros_like(each) if each.requires_grad else None
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def _is_recurrent(run: Training) -> bool:
    return any(isinstance(each, torch.nn.RNNBase) for each in run.model.modules())
