"""Fused groups: trials' stacked parameters, and all trials' losses and gradients in one pass."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from .operators.all_rows import AllRows
from .operators.drawing import Generators
from .operators.loop import ByRow
from .operators.not_fused import NotFused
from .operators.rules import Rules
from .operators.watch import Watch
from .optimisers import StepsByItself, VectorOptimiser, is_plain, stepped
from .recorded import RecordedSteps
from .stacks import Stack, are_in, put, unalias
from .structure import chosen

if TYPE_CHECKING:
    from ...tasks.contracts.contract import TorchTrainable
    from ...tasks.training.training import Training
    from .structure import Structure


class Group:
    """The stacks of trials of one structure; the trials' tensors become views of them.

    Each trial keeps its model and optimiser, which can be read, saved and loaded at any time.
    """

    def __init__(self, runs: Sequence[Training], structure: Structure, *, vector: bool) -> None:
        """Stack the trials. If ``vector``, SGD, Adam and AdamW step all trials at once."""
        self.runs = list(runs)
        self.structure = structure
        self._tensors = [_tensors(run) for run in runs]
        self.weights = Stack(self._tensors)
        for tensors, views in zip(self._tensors, self.weights.rows, strict=True):
            put(tensors, views)
        #: The parameters that optimisers step, for each trial, and the stack of their gradients.
        self.stepped = [stepped(run.optimizer) for run in runs]
        self.gradients = Stack(self.stepped)
        for flat in self.gradients.flats.values():
            flat.zero_()
        self._compute()
        #: The values of ``common`` for which a call was watched.
        self._watched: set[bool] = set()
        #: For each stepped parameter, True if the last losses had a gradient for the parameter.
        self._there = [True] * len(self.stepped[0])
        self.optimiser: VectorOptimiser | None = None
        if vector and is_plain(runs[0].optimizer):
            optimiser = VectorOptimiser([run.optimizer for run in runs], self.weights)
            self.optimiser = optimiser if optimiser.bind() else None

    def _compute(self) -> None:
        """Make the model, inputs, rules and recorder that fit the group's present trials."""
        first, of_first = self.runs[0].model, self._tensors[0]
        #: A model for all trials at once; each call puts the trials' tensors into the model.
        self.model = copy.deepcopy(first, {id(tensor): tensor for tensor in of_first})
        for module in self.model.modules():  # one trial's choices must not be taken for all
            for name in chosen(module):
                delattr(module, name)
        parameters = {id(p) for p in first.parameters()}
        self._entries = _entries(self.model, of_first)
        self._buffers = [i for i, own in enumerate(of_first) if id(own) not in parameters]
        self._inputs = [
            stack.detach().requires_grad_(own.requires_grad)
            for stack, own in zip(self.weights.stacked, of_first, strict=True)
        ]
        self.generators = Generators(len(self.runs), self.runs[0].device)
        self._all = AllRows(len(self.runs))
        self._rules = Rules(self._all, self.generators)
        self._computing = self.runs[0].system.computing(self.runs[0].device)
        self.recorded_steps = RecordedSteps(
            list(self.weights.flats.values()), self.generators, self._rules
        )

    def part(self, runs: Sequence[Training]) -> Group | None:
        """Return a group of some consecutive trials of this group, in the same memory.

        Returns None if the trials are not consecutive, if one of their tensors has been replaced,
        or before the first step, since only one group can track optimisers without a state.
        """
        names, count = [id(run) for run in self.runs], len(runs)
        begin = names.index(id(runs[0])) if id(runs[0]) in names else len(names)
        of = slice(begin, begin + count)
        if names[of] != [id(run) for run in runs]:
            return None
        if count == len(names):
            return self if self._is_whole() else None
        if self.optimiser is not None and self.optimiser.fresh:
            return None
        group = copy.copy(self)
        group.runs, group._tensors = self.runs[of], self._tensors[of]
        group.weights, group.gradients = self.weights.part(of), self.gradients.part(of)
        group.stepped = self.stepped[of]
        if self.optimiser is not None:
            group.optimiser = self.optimiser.part(of, group.weights)
        if not group._is_whole():
            return None
        group._compute()
        return group

    def begin(self) -> None:
        """Begin an epoch: give each dropout module the rates of all trials."""
        models = [run.model.modules() for run in self.runs]
        for module, *each in zip(self.model.modules(), *models, strict=True):
            if isinstance(module, nn.Dropout):
                rates = ByRow(dropout.p for dropout in each)
                rate = rates[0] if len(set(rates)) == 1 else rates
                if module.p != rate:
                    module.p = rate  # type: ignore[assignment]
                    self.recorded_steps.forget()

    def _is_whole(self) -> bool:
        """Return True if every tensor of the trials is still a view of the stacks."""
        views = zip(self.runs, self.weights.rows, strict=True)
        return all(are_in(_tensors(run), row) for run, row in views) and (
            self.optimiser is None or self.optimiser.is_bound()
        )

    def is_watched(self, *, common: bool) -> bool:
        """Return True if a call with the same value of ``common`` was watched (checked) before.

        Only the first call with each value is watched.
        """
        return common in self._watched

    def release(self, k: int) -> None:
        """Give trial ``k`` memory of its own."""
        unalias(self._tensors[k], self.weights.rows[k])
        if self.optimiser is not None:
            self.optimiser.release(k)

    def call(
        self, function: Callable[[nn.Module, Any], Any], batch: tuple[Tensor, ...], *, common: bool
    ) -> Any:
        """Return ``function(model, batch)`` for all trials.

        If ``common``, all trials use the same batch.
        """

        def each(tensors: Sequence[Tensor], batch: tuple[Tensor, ...]) -> Any:
            for (owner, name), tensor in zip(self._entries, tensors, strict=True):
                owner[name] = tensor
            with self._rules, nullcontext() if common in self._watched else Watch(self._rules):
                outputs = function(self.model, batch)
            self._watched.add(common)
            for i in self._buffers:
                owner, name = self._entries[i]
                if owner[name] is not tensors[i]:
                    raise NotFused(f"the model replaces its buffer {name}")
            return outputs

        with self._computing:
            return self._all.call(each, self._inputs, batch, common=common)

    def differentiate(
        self, code: TorchTrainable, batch: tuple[Tensor, ...], weight: float = 1.0
    ) -> tuple[Tensor, Sequence[Tensor | None]]:
        """Return the detached losses (K,), and the gradients of ``weight`` times each loss.

        A gradient is (K, ...), or None if the losses do not use the parameter.
        """
        losses = self.call(code.loss, batch, common=False)
        if not isinstance(losses, Tensor) or losses.shape != (len(self.runs),):
            raise NotFused("its loss is not a single number")
        inputs = self._inputs[: len(self.stepped[0])]
        weighted = losses if weight == 1.0 else losses * weight
        # Differentiate the sum: given a gradient for each loss, torch would import sympy (0.3 s).
        gradients = torch.autograd.grad(weighted.sum(), inputs, allow_unused=True)
        return losses.detach().clone(), gradients  # they may be a view of a parameter

    def take(self, made: Sequence[Tensor | None]) -> None:
        """Copy the gradients ``made`` into the stack."""
        self._there = [each is not None for each in made]
        pairs = zip(self.gradients.stacked, made, strict=True)
        present = [(stack, each) for stack, each in pairs if each is not None]
        with torch.no_grad():
            torch._foreach_copy_([stack for stack, _ in present], [each for _, each in present])

    def step(self, failed: Callable[[int, Exception], None]) -> None:
        """Step the optimisers with the gradients in the stack.

        ``failed`` is called with the index of a trial whose own optimiser raises, and the error.
        Raises ``StepsByItself``, with nothing changed, if each optimiser must step by itself.
        """
        if self.optimiser is not None:
            if not all(self._there):
                raise StepsByItself
            with torch.no_grad():
                self.optimiser.step(self.gradients)
            return
        self.give_gradients()
        for k, run in enumerate(self.runs):
            try:
                run.optimizer.step()
            except Exception as error:
                failed(k, error)

    def give_gradients(self) -> None:
        """Set the gradients of the trials' parameters to views of the stack."""
        for parameters, views in zip(self.stepped, self.gradients.rows, strict=True):
            for parameter, view, has_gradient in zip(parameters, views, self._there, strict=True):
                parameter.grad = view if has_gradient else None

    def take_gradients(self, k: int) -> None:
        """Copy gradients that the code of trial ``k`` has replaced back into the stack."""
        each = zip(self.stepped[k], self.gradients.rows[k], self._there, strict=True)
        for parameter, view, had_gradient in each:
            if (parameter.grad is not None) != had_gradient:
                raise NotFused("clip() gives or takes away gradients")
            if parameter.grad is not None and parameter.grad is not view:
                view.copy_(parameter.grad)

    def drop_gradients(self) -> None:
        for parameters in self.stepped:
            for parameter in parameters:
                parameter.grad = None


def _tensors(run: Training) -> list[Tensor]:
    """Return a trial's stepped parameters, other parameters, and buffers, in that order."""
    first = stepped(run.optimizer)
    stepped_ids = {id(each) for each in first}
    modules = list(run.model.modules())
    parameters = [each for module in modules for each in module._parameters.values()]
    rest = [each for each in parameters if each is not None and id(each) not in stepped_ids]
    buffers = [each for module in modules for each in module._buffers.values()]
    return [*first, *rest, *(each for each in buffers if each is not None)]


def _entries(model: nn.Module, tensors: Sequence[Tensor]) -> list[tuple[dict[str, Any], str]]:
    """Return, for each of ``tensors``, the dict and the key under which ``model`` has it."""
    entries: dict[int, tuple[dict[str, Any], str]] = {}
    for module in model.modules():
        for owner in (module._parameters, module._buffers):
            entries |= {id(each): (owner, name) for name, each in owner.items() if each is not None}
    return [entries[id(each)] for each in tensors]


class Snapshot:
    """Copies of everything that an epoch changes before its end, at which the schedules step."""

    def __init__(self, group: Group) -> None:
        self._rows = {id(run): k for k, run in enumerate(group.runs)}
        self._epochs = [run.epoch for run in group.runs]
        self._options = [
            [
                {n: v for n, v in each.items() if n != "params"}
                for each in run.optimizer.param_groups
            ]
            for run in group.runs
        ]
        self._stacks = {name: _copies(stack) for name, stack in _stacks(group).items()}
        self._fresh = set() if group.optimiser is None else set(group.optimiser.fresh)
        self._own: list[Any] = []
        if group.optimiser is None:
            self._own = [copy.deepcopy(run.optimizer.state_dict()) for run in group.runs]

    def restore(self, group: Group, left: Collection[int]) -> None:
        """Restore the trials of ``group`` to the epoch's start, so that they can train alone.

        The snapshot must include these trials. Trials in ``left`` are skipped, since they have
        memory of their own.
        """
        rows = [self._rows[id(run)] for run in group.runs]
        for name, stack in _stacks(group).items():
            for flat, copied in zip(stack.flats.values(), self._stacks[name], strict=True):
                flat.copy_(copied[rows])
        for run, at in zip(group.runs, rows, strict=True):
            if id(run) in left:
                continue
            run.epoch = self._epochs[at]
            if self._own:
                run.optimizer.load_state_dict(self._own[at])
            for options, own in zip(run.optimizer.param_groups, self._options[at], strict=True):
                options.update(own)
        if group.optimiser is not None:
            group.optimiser.fresh = {k for k, at in enumerate(rows) if at in self._fresh}
            group.optimiser.dissolve()


def _stacks(group: Group) -> dict[str, Stack]:
    state = {} if group.optimiser is None else group.optimiser.state
    return {"": group.weights, **state}


def _copies(stack: Stack) -> list[Tensor]:
    return [flat.clone() for flat in stack.flats.values()]
