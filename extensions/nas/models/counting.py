"""Counts of a model before it is trained, on torch's ``meta`` device.

Theory of operation. The user's code makes a trial's model on that device, without memory for
weights, and calls the loss of one example. Nothing is computed, so the count costs only the calls
of operators. If the code needs the values of tensors, only parameters are counted. If it cannot
make its model on that device, nothing is counted.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.data import Dataset, default_collate
from torch.utils.flop_counter import flop_registry

from ....tasks.contracts.pieces import Pieces, StartParams
from ....tasks.training.data import in_memory
from .architecture import Architecture
from .choices import choices_of
from .counts import parameters

if TYPE_CHECKING:
    from ....tasks.contracts.contract import TorchTrainable


def counted(
    code: TorchTrainable, params: Mapping[str, Any], batch: Any
) -> tuple[Architecture, list[str]] | None:
    """Return the counts of the model for ``params``, and the choices that determine the model.

    ``code`` is the user's object of any trial of the study. ``batch`` is a batch of one example, or
    None if there is no example. Returns None if the model cannot be made without memory for its
    weights.
    """
    like = copy.copy(code)
    like._pieces = Pieces(params)
    like.params = StartParams(like._pieces)
    try:
        with torch.device("meta"):
            model = like.model().to("meta").eval()
    except Exception:  # whatever the user's code raises
        return None
    learned = parameters(model)
    architecture = Architecture(learned, 0, 0, 0)
    if batch is not None:
        with suppress(Exception):  # code that reads values
            with torch.device("meta"), torch.no_grad(), _Operators() as operators:
                like.loss(model, batch)
            architecture = Architecture(
                learned, operators.flops, operators.numbers, operators.calls
            )
    return architecture, choices_of(model)


class _Operators(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's
    """A mode that counts calls of operators, their operations, and their results' elements."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls = self.flops = self.numbers = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = func(*args, **(kwargs or {}))
        self.calls += 1
        formula = flop_registry.get(getattr(func, "_overloadpacket", None))
        if formula is not None:
            self.flops += int(formula(*args, **(kwargs or {}), out_val=output))
        self.numbers += sum(
            each.numel() for each in tree_leaves(output) if isinstance(each, Tensor)
        )
        return output


def batch_of_one(data: Dataset[Any], examples: Callable[[], Mapping[int, Any]]) -> Any:
    """Return a batch of one example, without its values; None if no example can be read.

    ``examples`` returns the first example of each data set that is loaded, by the data set's
    ``id``.
    """
    tensors = in_memory(data)
    if tensors is not None:
        return tuple(each[:1].to("meta") for each in tensors)
    example = examples().get(id(data))
    if example is None:
        return None
    return tree_map_only(Tensor, lambda each: each.to("meta"), default_collate([example]))
