"""Run a model on its example, and leave buffers, modes and random states as they were."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten

from ....base.errors import UsageError
from ....tasks.system.unchanged import unchanged


def run(
    model: nn.Module, forward: Callable[..., Any], inputs: Sequence[Any], *, training: bool
) -> Any:
    """Return the output of ``forward`` without gradients. Each call has the same random numbers."""
    with unchanged(model), torch.no_grad():
        model.train(training)
        torch.manual_seed(0)
        random.seed(0)
        if numpy := sys.modules.get("numpy"):
            numpy.random.seed(0)
        return forward(model, *inputs)


def trains(model: nn.Module, inputs: Sequence[Any]) -> list[tuple[int, ...]]:
    """Run the model forward and backward in training mode; return the shapes of its outputs.

    Raises torch's errors, and UsageError if the model returns no tensor.
    """
    with unchanged(model), torch.enable_grad():
        model.train()
        outputs = [each for each in tree_flatten(model(*inputs))[0] if isinstance(each, Tensor)]
        if not outputs:
            raise UsageError("the model gives no tensor", "forward")
        learning = [each for each in model.parameters() if each.requires_grad]
        losses = [each.float().sum() for each in outputs if each.requires_grad]
        if learning and losses:
            torch.autograd.grad(sum(losses), learning, allow_unused=True)  # type: ignore[arg-type]
        return [tuple(each.shape) for each in outputs]
