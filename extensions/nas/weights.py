"""The weights of a trained super-net, loaded once for all its candidates in a trainer.

A candidate's parameters and buffers have the same names as in the super-net, so they are copied
from memory. No checkpoint is written or read for a candidate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ...base.errors import BackendError, TrialFailed
from ...tasks.checkpoints.checkpoint import load

if TYPE_CHECKING:
    from torch import nn

#: The most names in a message.
_SHOWN = 5


class SuperNetWeights:
    """The weights of the super-net whose candidates this trainer evaluates."""

    def __init__(self) -> None:
        self._state_hash = ""
        self._weights: dict[str, Any] = {}

    def give(self, model: nn.Module, uri: str, state_hash: str) -> None:
        """Copy the weights of the super-net at ``uri`` to ``model``.

        Raises ``TrialFailed`` (checkpoint) if the super-net's state is gone, and ``TrialFailed``
        (fork) naming weights that the super-net lacks or has in another shape; ``BackendError`` if
        the store cannot be read.
        """
        if self._state_hash != state_hash:
            self.drop()
            self._weights = _loaded(uri, state_hash)
            self._state_hash = state_hash
        own = model.state_dict()
        lacking = [
            name
            for name, tensor in own.items()
            if getattr(self._weights.get(name), "shape", None) != tensor.shape
        ]
        if lacking:
            names = ", ".join(lacking[:_SHOWN]) + (", ..." if len(lacking) > _SHOWN else "")
            raise TrialFailed(
                "fork",
                f"the super-net has no weights of this shape for {names}: candidates must"
                " have its choices, and the values that it was made with",
            )
        # Not load_state_dict, which walks through all modules: 3 times as long.
        torch._foreach_copy_(list(own.values()), [self._weights[name] for name in own])

    def drop(self) -> None:
        """Free the memory. Weights that are needed later are loaded again."""
        self._state_hash, self._weights = "", {}


def _loaded(uri: str, state_hash: str) -> dict[str, Any]:
    try:
        weights: dict[str, Any] = load(uri, state_hash)["model"]
    except BackendError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            raise TrialFailed(
                "checkpoint", f"the state of the super-net is not in the store any more: {error}"
            ) from error
        raise
    return weights
