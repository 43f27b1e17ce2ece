"""The training of one epoch of a fused group, step by step.

Theory of operation. Everything that decides an epoch's bits (the order of examples, keys, options)
is computed for each trial as ``tasks.training.loop`` does. A trial whose tick, ``clip`` or own
optimiser raises gets memory of its own, and leaves the group after that step. In each epoch one
step of one trial, chosen by a key, is repeated alone and compared. In the first epochs of a
structure, the first steps of all trials are repeated and compared as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ...tasks.contracts.contract import TorchTrainable
from ...tasks.contracts.rng import key
from ...tasks.gangs.shards import cut
from ...tasks.gangs.tree_sum import Block, fold, push
from ...tasks.training import loop
from ...tasks.training.data import in_memory, length
from ...tasks.training.loop import Tick
from ...tasks.training.seeding import generators
from .checks import Facts, Mismatch, SoloCopy, check_generators, difference, facts, spent
from .evaluation import mean_losses
from .known import CHECKED, Admission
from .stacks import batch_of
from .stand_in import Common, stand_in
from .structure import Structure

if TYPE_CHECKING:
    from ...tasks.training.training import Training
    from .group import Group


#: Largest data set (bytes) that is copied to a GPU for an epoch.
_NEAR = 1 << 28


@dataclass
class Row:
    """A trial of a fused group, and the function that is called before each of its steps."""

    training: Training
    tick: Tick
    #: The trial's structure, if the caller knows it.
    structure: Structure | None = None


@dataclass(frozen=True, slots=True)
class Result(loop.Result):
    """The result of an epoch: metrics and seconds, and the times of its fused group."""

    #: Seconds that the epoch would have taken alone; 0 if it was trained alone, or if unknown.
    alone: float = 0.0
    #: Number of trials in the fused group, including this one.
    group_size: int = 1
    #: Pairs of the size of a fused group and a ratio: the expected time of a trial's epoch in such
    #: a group, divided by the time of the epoch alone.
    slowdowns: tuple[tuple[int, float], ...] = ()


def alone(result: loop.Result) -> Result:
    """Return the ``Result`` of an epoch that the usual loop trained alone."""
    return Result(result.metrics, result.seconds)


Outcome = Result | BaseException


class Epoch:
    """The training of one epoch. ``rows`` and ``group`` have only the trials that have not left."""

    def __init__(
        self,
        rows: Sequence[Row],
        group: Group,
        admission: Admission,
        solo: SoloCopy,
        regroup: Callable[[Sequence[Training]], Group],
        *,
        unfused: int = 0,
    ) -> None:
        """Prepare an epoch of ``rows``.

        Args:
            rows: The trials.
            group: The stacks of the trials.
            admission: Facts about the trials' structure; the epoch adds to them.
            solo: A copy of a model that repeats steps alone.
            regroup: Makes a group of the remaining trials after others have left.
            unfused: Number of the group's trials that are trained alone in this epoch. Times are
                recorded as if these were included.
        """
        self.rows = list(rows)
        self.group = group
        #: The exception of each trial that left, by the ``id`` of the trial's training.
        self.left: dict[int, BaseException] = {}
        self._admission = admission
        self._solo = solo
        self._regroup = regroup
        self._unfused = unfused
        first = rows[0].training
        self._device = first.device
        self._data = in_memory(first.data.train) or ()
        self._size, self._shards = first.batch_size, first.shards
        self._clips = type(first.code).clip is not TorchTrainable.clip
        self._common = Common([row.training.code for row in rows])
        self._code = stand_in(self._common, type(first.code))
        #: Indices of the trials that failed during this step.
        self._gone: set[int] = set()
        self._losses: list[Tensor] = []
        #: Number of steps, of the same size as this one, that are still to come in the epoch.
        self._follow = 0

    def train(self) -> list[float]:
        """Train the epoch; return the mean loss of each trial that has not left.

        Raises ``NotFused``, and anything raised by code that runs for all trials at once. After
        such an error, the states of the trials in ``rows`` are unusable.
        """
        for row in self.rows:
            row.training.begin_epoch()
        first = self.rows[0].training
        names = (first.seed, first.number, first.epoch)
        examples = self._begin()
        steps = -(-examples // self._size)
        check_keys = key("fused step", *names) % steps, key("fused trial", *names)
        for step in range(steps):
            self._tick(step + 1, steps)
            if not self.rows:
                return []
            part = self._orders[:, step * self._size : (step + 1) * self._size]
            self._follow = max(0, examples // self._size - step - 1)
            rows_to_check = {check_keys[1] % len(self.rows)} if step == check_keys[0] else set()
            self._step(step + 1, part, rows_to_check)
            self._leave()
        self._end()
        return mean_losses(self._losses, self._size, examples)

    def probe(self) -> None:
        """Step the rows, which must be copies, until enough steps have been compared and timed.

        After each fused step one row steps alone, so that both are timed under the same load of
        the machine. Only whole batches are used; there must be at least one. The rows' states are
        unusable afterwards. Raises as ``train`` does.
        """
        whole = self._begin() // self._size
        self._follow = whole
        step = 0
        while self._admission.step.undecided(self._about()):
            begin = step % whole * self._size
            part = self._orders[:, begin : begin + self._size]
            self._tick(step + 1, whole)
            self._step(step + 1, part, set())
            self._alone(0, step + 1, part[0])
            step += 1
        self._end()

    def _begin(self) -> int:
        """Draw each trial's order of the examples; return the number of examples."""
        examples = length(self.rows[0].training.data.train)
        self._orders = torch.stack([_order(row.training, examples) for row in self.rows])
        self._data = _near(self._data, self._device)
        self._before = generators()
        self._train_mode()
        return examples

    def _end(self) -> None:
        self.group.drop_gradients()
        self._common.check_unchanged()
        check_generators(self._before)

    def _train_mode(self) -> None:
        self.group.begin()
        self.group.model.train()
        if self._clips:
            for row in self.rows:
                row.training.model.train()

    def _tick(self, step: int, steps: int) -> None:
        for k, row in enumerate(self.rows):
            try:
                row.tick(row.training.epoch, step, steps)
            except BaseException as error:
                self._part_with(k, error)
        self._leave()

    def _step(self, number: int, part: Tensor, chosen: set[int]) -> None:
        size, count, admission = part.shape[1], len(self.rows), self._admission
        if admission.checked[size] < CHECKED:
            chosen = set(range(count))
            admission.checked[size] += 1
        expected = {k: self._alone(k, number, part[k]) for k in sorted(chosen)}
        timed = not chosen and size == self._size and admission.step.undecided(self._about())
        began = spent(self._device) if timed else 0.0
        losses = self._losses_of(number, part)
        if self._clips:
            self._clip()
        self.group.step(self._part_with)
        if timed:
            admission.step.fused(self._about()).append((spent(self._device) - began) / count)
        self._losses.append(losses)
        for k, alone in expected.items():
            if k not in self._gone:
                self._compare(k, number, losses[k], alone)

    def _about(self) -> int:
        """Return the group size under which times are recorded, including unfused trials."""
        return len(self.rows) + self._unfused

    def _losses_of(self, number: int, part: Tensor) -> Tensor:
        """Return the losses (K,) of a step, and put the gradients into the group's stack.

        Losses and gradients are summed over the shards of each batch as in ``tasks.gangs.shards``.
        """
        if self._shards == 1:
            losses, gradient_tensors = self._shard(number, 0, part, 1.0)
            self.group.take(gradient_tensors)
            return losses
        stack = list[Block]()
        for shard, span in enumerate(cut(part.shape[1], self._shards, self._size)):
            weight = len(span) / part.shape[1]
            piece = part[:, span.start : span.stop]
            losses, gradient_tensors = self._shard(number, shard, piece, weight)
            # Copies, because sums are made in place and the gradients may share memory.
            gradients = [None if each is None else each.clone() for each in gradient_tensors]
            push(stack, Block(shard, 1, gradients, [(losses * weight).float()]))
        root = fold(stack)
        self.group.take(root.gradients)
        return root.sums[0]

    def _shard(
        self, number: int, shard: int, part: Tensor, weight: float
    ) -> tuple[Tensor, Sequence[Tensor | None]]:
        batch = batch_of(self._data, part, self.rows[0].training)
        return self.group.recorded_steps.step(
            (part.shape[1], weight),
            batch,
            lambda: [_seed(row.training, number, shard) for row in self.rows],
            self._common,
            lambda batch: self.group.differentiate(self._code, batch, weight),
            follow=self._follow,
        )

    def _alone(self, k: int, number: int, part: Tensor) -> Facts:
        run, optimiser = self.rows[k].training, self.group.optimiser
        self._solo.become(run, fresh=optimiser is not None and k in optimiser.fresh)
        seeds = [_seed(run, number, shard) for shard in range(self._shards)]
        step_facts = self._solo.step(run, part, seeds)
        if len(part) == self._size and self._admission.step.undecided(self._about()):
            self._admission.step.alone.append(self._solo.seconds)
        return step_facts

    def _compare(self, k: int, number: int, loss: Tensor, alone: Facts) -> None:
        if name := difference(facts(self.rows[k].training, loss), alone):
            check_generators(self._before)  # random numbers would explain the difference
            raise Mismatch(f"{name} had other bits together than alone, in step {number}")

    def _clip(self) -> None:
        self.group.give_gradients()
        for k, row in enumerate(self.rows):
            try:
                row.training.code.clip(row.training.model)
            except Exception as error:
                self._part_with(k, error)
            else:
                self.group.take_gradients(k)

    def _part_with(self, k: int, error: BaseException) -> None:
        """Remove trial ``k`` from the group, because its epoch has ended with ``error``.

        The trial's tensors get memory of their own.
        """
        self.left[id(self.rows[k].training)] = error
        self.group.release(k)
        self._gone.add(k)

    def _leave(self) -> None:
        """Regroup without the trials that failed during this step."""
        if not self._gone:
            return
        self._common.check_unchanged()
        keep = [k for k in range(len(self.rows)) if k not in self._gone]
        self._gone.clear()
        self.rows = [self.rows[k] for k in keep]
        self._orders = self._orders[keep]
        self._losses = [losses[keep] for losses in self._losses]
        if self.rows:
            self.group = self._regroup([row.training for row in self.rows])
            self._common = Common([row.training.code for row in self.rows])
            self._code = stand_in(self._common, type(self.rows[0].training.code))
            self._train_mode()


def _near(tensors: tuple[Tensor, ...], device: torch.device) -> tuple[Tensor, ...]:
    """Return the tensors, copied to ``device`` if they are small enough."""
    small = sum(each.nbytes for each in tensors) <= _NEAR
    return tuple(each.to(device) for each in tensors) if small else tensors


def _order(run: Training, examples: int) -> Tensor:
    generator = torch.Generator().manual_seed(key("order", run.seed, run.number, run.epoch))
    return torch.randperm(examples, generator=generator)


def _seed(run: Training, step: int, shard: int) -> int:
    return key("step", run.seed, run.number, run.epoch, step, shard)
