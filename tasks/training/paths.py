"""The paths of a super-net: one candidate of each choice, drawn before each forward pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import nn
from torch._subclasses.fake_tensor import unset_fake_temporarily


class Choosing(Protocol):
    """A layer that has all candidates of its choice, and computes with one of them."""

    def take(self, candidate: Any) -> None: ...


class OpenChoice(NamedTuple):
    """A choice that a super-net leaves open: its candidates, and the layers that make it."""

    candidates: Sequence[Any]
    layers: Sequence[Choosing]
    #: For each candidate, the modules of all layers that no other candidate has; empty if there are
    #: none.
    modules: Sequence[Sequence[nn.Module]] = ()
    #: True if each candidate has all modules of the one before it.
    nested: bool = False


class Paths:
    """Draws a path before each forward pass of a model. It is copied with its model."""

    def __init__(self, choices: Sequence[OpenChoice]) -> None:
        self.choices = choices
        #: The fixed path, as the candidate's number for each choice; None if a path is drawn.
        self.held: Sequence[int] | None = None

    def __call__(self, model: object, inputs: object) -> None:
        for number, choice in zip(self.held or self._at_random(), self.choices, strict=True):
            for layer in choice.layers:
                layer.take(choice.candidates[number])

    def _at_random(self) -> list[int]:
        with unset_fake_temporarily():  # an estimate of memory has no values
            # With few candidates, the remainder is uniform except for 1 part in 10**17.
            numbers = torch.randint(2**62, (len(self.choices),), device="cpu").tolist()
        return [n % len(each.candidates) for n, each in zip(numbers, self.choices, strict=True)]


def paths_of(model: nn.Module) -> list[Paths]:
    """Return the paths of all super-nets in ``model``, itself included."""
    hooks = (hook for part in model.modules() for hook in part._forward_pre_hooks.values())
    return [hook for hook in hooks if isinstance(hook, Paths)]
