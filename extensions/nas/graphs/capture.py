"""Capture of a model: its graph, its opaque modules with the reasons, and its layers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import Graph, GraphModule
from torch.utils._pytree import tree_flatten

from ....base.errors import UsageError
from .running import run
from .tracing import traced


@dataclass(frozen=True, slots=True)
class Captured:
    """The graph of a model. Its text lists the opaque modules, which cannot be mutated."""

    #: The graph; None if the model's own forward cannot be traced.
    graph: Graph | None
    #: The reason why each opaque module is opaque, by the module's name. The name "" is the model
    #: itself.
    opaque: Mapping[str, str]
    #: The class of each layer and opaque module that is called, by its name.
    layers: Mapping[str, str]

    def __str__(self) -> str:
        lines = [f"{len(self.layers)} layers can be mutated"]
        lines += [f"{name or 'the model'}: opaque, {why}" for name, why in self.opaque.items()]
        return "\n".join(lines)


def captured(model: nn.Module, *inputs: Any) -> Captured:
    """Return the graph of ``model`` on ``inputs`` (default: the model's ``example()``).

    No model is refused. Modules that cannot be traced are opaque: they are trained as they are, and
    can be replaced as a whole, but nothing in them is mutated or repaired. If the graph computes
    other numbers than the model does, in training or in evaluation, the graph is not used. Raises
    UsageError if there are no inputs, and any error that the model raises on its inputs.
    """
    inputs = inputs or inputs_of(model)
    graph, opaque = traced(model, inputs)
    if graph is not None and not _meta(model):
        for training in (True, False):
            if not _alike(
                run(model, type(model).forward, inputs, training=training),
                run(model, forward_of(model, graph), inputs, training=training),
            ):
                mode = "training" if training else "evaluation"
                graph, opaque = None, {"": f"its graph gives other numbers than it in {mode}"}
                break
    call_nodes = [] if graph is None else [each for each in graph.nodes if each.op == "call_module"]
    layers = {
        str(each.target): type(model.get_submodule(str(each.target))).__name__
        for each in call_nodes
    }
    return Captured(graph, opaque, layers)


def inputs_of(model: nn.Module, example: Any = None) -> tuple[Any, ...]:
    """Return ``example`` as a tuple of inputs, or those of the model's ``example()`` if it is None.

    Raises UsageError if there is no example, if ``model`` is a class and not an instance, and if
    the example is a shape, which is no input.
    """
    if not isinstance(model, nn.Module):
        raise UsageError.refuse("the model", model, "a torch.nn.Module that was made")
    own = getattr(model, "example", None)
    example_inputs = own() if example is None and own is not None else example
    if example_inputs is None:
        raise UsageError(
            f"{type(model).__name__} has no example(): let it return inputs of the model, such as"
            " torch.zeros(2, 3, 32, 32), so that shapes are known",
            "example",
        )
    inputs = (
        tuple(example_inputs) if isinstance(example_inputs, tuple | list) else (example_inputs,)
    )
    leaves = tree_flatten(inputs)[0]
    if leaves and all(isinstance(each, int | float | str) for each in leaves):
        allowed = "a tensor, or several in a tuple, such as torch.zeros(2, 3, 32, 32)"
        raise UsageError.refuse("example", example_inputs, allowed)
    return inputs


def forward_of(model: nn.Module, graph: Graph) -> Callable[..., Any]:
    """Return the function that computes ``graph``. Its arguments are the model and its inputs."""
    forward: Callable[..., Any] = type(GraphModule(model, graph)).forward
    return forward


def _meta(model: nn.Module) -> bool:
    tensors = [*model.parameters(), *model.buffers()]
    return any(each.device.type == "meta" for each in tensors)


def _alike(one: Any, other: Any) -> bool:
    values, structure = tree_flatten(one)
    other_values, same = tree_flatten(other)
    if len(values) != len(other_values) or structure != same:
        return False
    return all(
        torch.allclose(each, own, equal_nan=True) if isinstance(each, Tensor) else each == own
        for each, own in zip(values, other_values, strict=True)
    )
