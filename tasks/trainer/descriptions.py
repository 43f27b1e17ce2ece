"""Counts the models of trials before they are trained, where models make choices.

Theory of operation. The user's code makes a trial's model on torch's ``meta`` device, without
memory for weights, and computes the loss of one example there. Nothing is computed, so a model is
counted in about a hundredth of an epoch's time. The engine predicts with it what trials will take
(``profiling.base.architecture``). Code that needs the values of tensors gives the parameters
alone; code that cannot make its model there gives nothing.

A trainer spends on it about ``SHARE`` of the seconds in which it trained, and ``FREE`` before.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.data import Dataset, default_collate
from torch.utils.flop_counter import flop_registry

from ...profiling.base.architecture import Architecture
from ..nas.graphs.running import unchanged
from ..process.pipe import Run
from ..training.data import in_memory
from ..training.training import Training
from .shared_data import TrackedParams

if TYPE_CHECKING:
    from ..contracts.contract import TorchTrainable

#: Of the seconds in which a trainer trained.
SHARE = 0.02
#: Seconds that it may spend before it has trained.
FREE = 0.5


class Descriptions:
    """The counting of one trainer, and its account of the time."""

    def __init__(self) -> None:
        self._trained = self._spent = self._last = 0.0

    def trained(self, seconds: float) -> None:
        """Add ``seconds`` of training to the account."""
        self._trained += seconds

    def say(self, run: Run, training: Training, examples: Callable[[], Mapping[int, Any]]) -> None:
        """Say what the models of the segment's trial and of those that it names are.

        ``examples`` gives the first example of data sets that are loaded, by their ``id``.
        """
        task = run.task
        named = {each.trial: each.params for each in task.describe}
        if task.first == task.origin + 1:
            named = {task.trial: task.params} | named
        if not (named and task.rank == 0 and choices_of(training.model)):
            return
        with unchanged(training.model):
            batch = _batch_of_one(training.data.train, examples)
            for trial, params in named.items():
                if self._spent + self._last > FREE + SHARE * self._trained:
                    return
                run.preparing()
                began = time.perf_counter()
                found = counted(training.code, params, batch)
                self._last = time.perf_counter() - began
                self._spent += self._last
                if found is not None:
                    architecture, choices = found
                    run.say("described", of=trial, choices=choices, **asdict(architecture))


def choices_of(model: nn.Module) -> list[str]:
    """The hyperparameters that ``nas.build`` made the model by, or parts of it."""
    made = (getattr(each, "architecture", None) for each in model.modules())
    return sorted({name for each in made if isinstance(each, dict) for name in each})


def counted(
    code: TorchTrainable, params: Mapping[str, Any], batch: Any
) -> tuple[Architecture, list[str]] | None:
    """What the model of a trial with ``params`` is, and by which hyperparameters it is made.

    ``code`` is another trial's of the study, ``batch`` one example; None: there is none to be had.
    Returns None where no model can be made without memory.
    """
    like = copy.copy(code)
    like.params = reads = TrackedParams(params)
    like._pieces = reads.pieces
    try:
        with torch.device("meta"):
            model = like.model().to("meta").eval()
    except Exception:  # whatever the user's code raises
        return None
    learned = sum(each.numel() for each in model.parameters() if each.requires_grad)
    found = Architecture(learned, 0, 0, 0)
    if batch is not None:
        with suppress(Exception):  # code that reads values
            with torch.device("meta"), torch.no_grad(), _Operators() as made:
                like.loss(model, batch)
            found = Architecture(learned, made.flops, made.numbers, made.calls)
    return found, choices_of(model)


class _Operators(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's
    """Counts operators that are called, what they do, and the numbers that they give."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls = self.flops = self.numbers = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        self.calls += 1
        formula = flop_registry.get(getattr(func, "_overloadpacket", None))
        if formula is not None:
            self.flops += int(formula(*args, **(kwargs or {}), out_val=found))
        self.numbers += sum(each.numel() for each in tree_leaves(found) if isinstance(each, Tensor))
        return found


def _batch_of_one(data: Dataset[Any], examples: Callable[[], Mapping[int, Any]]) -> Any:
    """A batch of one example, without values; None where no example can be read."""
    tensors = in_memory(data)
    if tensors is not None:
        return tuple(each[:1].to("meta") for each in tensors)
    example = examples().get(id(data))
    if example is None:
        return None
    return tree_map_only(Tensor, lambda each: each.to("meta"), default_collate([example]))
