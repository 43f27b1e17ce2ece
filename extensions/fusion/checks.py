"""Compares a trial's step in a group with the same step alone."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ...tasks.gangs.shards import Sums, cut
from ...tasks.system.tensor_bytes import same_bits
from ...tasks.training.backward import backward
from ...tasks.training.data import in_memory
from ...tasks.training.seeding import generators, seed_torch
from .operators.not_fused import NotFused
from .stacks import batch_of

if TYPE_CHECKING:
    from ...tasks.training.training import Training


def spent(device: torch.device) -> float:
    """Return the current time (seconds) of the clock that times fused steps and steps alone.

    On a CPU the clock is the processor time of this thread, since other processes interrupt a long
    step more often than a short one. On a GPU, which computes asynchronously and for one process at
    a time, it is the wall clock after a synchronization.
    """
    if device.type != "cuda":
        return time.thread_time()
    torch.cuda.synchronize(device)
    return time.perf_counter()


class Mismatch(NotFused):
    """Raised if a trial's results in a group have other bits than its results alone."""


class SoloCopy:
    """A copy of a model and its optimiser that takes the state of each trial in turn."""

    def __init__(self, run: Training) -> None:
        """Copy the model and optimiser of ``run``; raise ``NotFused`` if that is impossible."""
        state = run.optimizer.state.values()
        tensors = [t for each in state for t in each.values() if isinstance(t, Tensor)]
        memo: dict[int, Any] = {id(t): t.clone() for t in (*run.model.buffers(), *tensors)}
        for each in run.model.parameters():
            memo[id(each)] = nn.Parameter(each.detach().clone(), requires_grad=each.requires_grad)
        try:
            self.model, self.optimizer = copy.deepcopy((run.model, run.optimizer), memo)
        except Exception as error:  # a user's class may raise anything
            raise NotFused(f"its model or optimiser cannot be copied: {error}") from error
        #: Seconds of the last step, as ``spent`` counts them.
        self.seconds = 0.0

    @torch.no_grad()
    def become(self, run: Training, *, fresh: bool) -> None:
        """Copy the state of ``run``. If ``fresh``, its optimiser counts as having no state."""
        torch._foreach_copy_(_tensors(self.model), _tensors(run.model))
        modules = zip(self.model.modules(), run.model.modules(), strict=True)
        for own_module, module in modules:
            if isinstance(module, nn.Dropout) and isinstance(own_module, nn.Dropout):
                own_module.p = module.p  # the one attribute that may differ
        self.optimizer.state.clear()
        groups = zip(self.optimizer.param_groups, run.optimizer.param_groups, strict=True)
        for options, group in groups:
            options.update({name: value for name, value in group.items() if name != "params"})
            for own, other in zip(options["params"], group["params"], strict=True):
                if other in run.optimizer.state and not fresh:
                    state = run.optimizer.state[other]
                    self.optimizer.state[own] = {n: _copied(each) for n, each in state.items()}

    def step(self, run: Training, part: Tensor, seeds: Sequence[int]) -> Facts:
        """Step with the examples ``part`` as the trial would alone; return the step's ``facts``.

        ``seeds`` has a seed for each shard.
        """
        training = replace(
            run, code=copy.copy(run.code), model=self.model, optimizer=self.optimizer
        )
        self.model.train()
        saved = torch.default_generator.get_state()
        began = spent(run.device)
        self.optimizer.zero_grad(set_to_none=True)
        loss = (_by_shard if run.shards > 1 else _by_batch)(training, part, seeds)
        training.code.clip(self.model)
        self.optimizer.step()
        self.seconds = spent(run.device) - began
        torch.default_generator.set_state(saved)
        return facts(training, loss)


def _by_batch(run: Training, part: Tensor, seeds: Sequence[int]) -> Tensor:
    batch = batch_of(in_memory(run.data.train) or (), part, run)
    seed_torch(run.device, seeds[0])
    return backward(run, run.model, batch, len(part), run.system)


def _by_shard(run: Training, part: Tensor, seeds: Sequence[int]) -> Tensor:
    sums = Sums(run.model, None)
    spans = cut(len(part), run.shards, run.batch_size)
    for shard in sums.begin(len(spans)):
        piece = part[spans[shard].start : spans[shard].stop]
        batch = batch_of(in_memory(run.data.train) or (), piece, run)
        seed_torch(run.device, seeds[shard])
        with run.system.computing(run.device):
            loss = run.code.loss(run.model, batch)
        sums.take(shard, loss, len(piece) / len(part))
    return sums.finish()


#: A dtype and a device. Tensors with the same kind can be concatenated.
_Kind = tuple[torch.dtype, torch.device]


@dataclass(frozen=True, slots=True)
class Facts:
    """Copies of everything that a step changes, by name. Tensors of one kind are concatenated."""

    shapes: dict[str, tuple[_Kind, torch.Size]]
    #: The elements of all tensors of a kind, in the order of ``shapes``.
    elements: dict[_Kind, Tensor]
    #: Values that are not tensors.
    values: dict[str, Any]

    def named(self) -> dict[str, Any]:
        """Return each tensor and each value by its name."""
        by_name = dict(self.values)
        for kind, elements in self.elements.items():
            shapes = {name: shape for name, (its, shape) in self.shapes.items() if its == kind}
            parts = torch.split(elements, [shape.numel() for shape in shapes.values()])
            for (name, shape), part in zip(shapes.items(), parts, strict=True):
                by_name[name] = part.view(shape)
        return by_name


@torch.no_grad()
def facts(run: Training, loss: Tensor) -> Facts:
    """Return copies of a trial's loss, weights, buffers and optimiser state after a step."""
    tensors: dict[str, Any] = {"the loss": loss}
    names = dict[int, str]()
    for name, tensor in _named(run.model):
        tensors[name], names[id(tensor)] = tensor, name
    for group in run.optimizer.param_groups:
        for parameter in group["params"]:
            for name, value in run.optimizer.state.get(parameter, {}).items():
                tensors[f"{name} of {names[id(parameter)]}"] = value
    shapes: dict[str, tuple[_Kind, torch.Size]] = {}
    parts: dict[_Kind, list[Tensor]] = {}
    values: dict[str, Any] = {}
    for name in sorted(tensors):
        value = tensors[name]
        if isinstance(value, Tensor):
            kind = value.dtype, value.device
            shapes[name] = kind, value.shape
            parts.setdefault(kind, []).append(value.reshape(-1))
        else:
            values[name] = copy.copy(value)
    return Facts(shapes, {kind: torch.cat(each) for kind, each in parts.items()}, values)


def difference(one: Facts, other: Facts) -> str:
    """Return the name of the first tensor or value that differs; empty if none does."""
    if one.shapes == other.shapes and not (one.values or other.values):
        pairs = ((each, other.elements[kind]) for kind, each in one.elements.items())
        if all(same_bits(*both) for both in pairs):
            return ""
    first, its = one.named(), other.named()
    if first.keys() != its.keys():
        return sorted(first.keys() ^ its.keys())[0]
    return next((name for name, value in first.items() if not same(value, its[name])), "")


def same(one: Any, other: Any) -> bool:
    """Return True if two tensors have the same bits, or two other values are equal."""
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return same_bits(one, other)
    return type(one) is type(other) and bool(one == other)


def _named(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    yield from model.named_parameters()
    yield from model.named_buffers()


def _tensors(model: nn.Module) -> list[Tensor]:
    return [tensor for _, tensor in _named(model)]


def _copied(value: Any) -> Any:
    return value.clone() if isinstance(value, Tensor) else copy.copy(value)


def check_generators(before: tuple[Any, ...]) -> None:
    """Raise ``NotFused`` if random numbers were drawn since ``before``."""
    for name, then, now in zip(("Python", "NumPy", "torch"), before, generators(), strict=True):
        if then != now:
            raise NotFused(f"its code draws from {name}'s random numbers")
