"""Says of models that make choices what they came to be, and counts them before they are trained.

Theory of operation. The user's code makes a trial's model on torch's ``meta`` device, without
memory for weights, and computes the loss of one example there. Nothing is computed, so a model is
counted in about a hundredth of an epoch's time. The engine predicts with it what trials will take
(``profiling.base.architecture``). Code that needs the values of tensors gives the parameters
alone; code that cannot make its model there gives nothing.

What a model came to be is traced, without running it, for stories and pictures.

A trainer spends on each about ``SHARE`` of the seconds in which it trained the study's trials, and
``FREE`` before.
"""

from __future__ import annotations

import copy
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.data import Dataset, default_collate
from torch.utils.flop_counter import flop_registry

from ...profiling.base.architecture import Architecture
from ..nas.graphs.running import unchanged
from ..process.messages import dumps
from ..process.pipe import Run
from ..training.data import in_memory
from ..training.training import Training
from .shared_data import TrackedParams

if TYPE_CHECKING:
    from ..contracts.contract import TorchTrainable

#: Of the seconds in which a trainer trained trials of a study.
SHARE = 0.02
#: Seconds that it may spend before it has trained them.
FREE = 0.5


@dataclass(slots=True)
class _Account:
    """What one kind of work has taken of a study's time here (seconds)."""

    #: That in which its trials trained.
    trained: float = 0.0
    spent: float = 0.0
    last: float = 0.0

    def affords(self) -> bool:
        """Whether there is time for one more that takes as long as the last one."""
        return self.spent + self.last <= FREE + SHARE * self.trained

    def spend(self, began: float) -> None:
        """One more was done, since ``began`` (``time.perf_counter``)."""
        self.last = time.perf_counter() - began
        self.spent += self.last


class Descriptions:
    """What one trainer counts and traces, and for each study its accounts of the time."""

    def __init__(self) -> None:
        self._counting = defaultdict[str, _Account](_Account)
        self._tracing = defaultdict[str, _Account](_Account)

    def trained(self, study: str, seconds: float) -> None:
        """Add ``seconds`` of training to the study's accounts."""
        for accounts in (self._counting, self._tracing):
            accounts[study].trained += seconds

    def forget(self, study: str) -> None:
        """The study is over."""
        for accounts in (self._counting, self._tracing):
            accounts.pop(study, None)

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
                if not self._counting[task.study].affords():
                    return
                run.preparing()
                began = time.perf_counter()
                found = counted(training.code, params, batch)
                self._counting[task.study].spend(began)
                if found is not None:
                    architecture, choices = found
                    run.say("described", of=trial, choices=choices, **asdict(architecture))

    def derive(self, run: Run, training: Training) -> bool:
        """Say what the model came to be, if it makes choices; False: there is no time for that.

        Of a model that mutators made it is known already.
        """
        model, account = training.model, self._tracing[run.task.study]
        if run.task.rank or getattr(model, "architecture", None) is None:
            return True
        from ..nas.model import ModelSpace

        if not isinstance(model, ModelSpace):
            return True
        if model.derivation is None and not account.affords():
            return False
        from ..nas.graphs.derivation import described

        began = time.perf_counter()
        found, outline = described(model)
        log = dumps(found.as_json()["log"])
        run.say("derived", base=found.base, log=log, digest=found.digest, outline=dumps(outline))
        account.spend(began)
        return True


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
