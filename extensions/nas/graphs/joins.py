"""Nodes that join two values: adaptors for additions, and the layer to change before a product."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from math import prod
from typing import Any

import torch
from torch import nn
from torch.fx import Node

from .primitives import ModelGraph
from .shapes import Shape

#: Policies for an addition whose two sides have different shapes.
POLICIES = ("shortcut", "branch", "refuse")
_ADDITIONS = {
    operator.add, operator.iadd, operator.sub, operator.isub, torch.add, torch.sub,
    "add", "add_", "sub", "sub_",
}  # fmt: skip
_CONCATENATIONS = {torch.cat, torch.concat, torch.concatenate}
_PRODUCTS = {operator.mul, operator.imul, torch.mul, "mul", "mul_"}
_CONVOLUTIONS = {3: "Conv1d", 4: "Conv2d", 5: "Conv3d"}


def is_addition(node: Node) -> bool:
    """Return True if a node adds or subtracts."""
    return node.op in {"call_function", "call_method"} and node.target in _ADDITIONS


def joined_along(node: Node) -> int | None:
    """Return the dimension along which ``node`` concatenates; None if it does not concatenate."""
    if node.op != "call_function" or node.target not in _CONCATENATIONS:
        return None
    dimension = node.kwargs.get("dim", node.args[1] if len(node.args) > 1 else 0)
    return dimension if isinstance(dimension, int) else None


def is_product(node: Node) -> bool:
    """Return True if a node multiplies element by element."""
    return node.op in {"call_function", "call_method"} and node.target in _PRODUCTS


def adaptor(given: Shape, target: Shape) -> dict[str, Any] | None:
    """Return the recipe of a 1 x 1 or linear layer from shape ``given`` to ``target``, or None.

    In images, dimension 1 has the channels; in values of two dimensions, the last one has. In
    values of three dimensions it may be either, so the dimension that differs is taken. If an image
    shrinks by the same whole number in all its dimensions, that number is the stride of the
    convolution.
    """
    if len(given) != len(target) or given[0] != target[0]:
        return None
    differ = [axis for axis in range(1, len(given)) if given[axis] != target[axis]]
    if len(given) in {2, 3} and differ == [len(given) - 1]:
        return _recipe("Linear", given[-1], target[-1])
    if len(given) not in _CONVOLUTIONS:
        return None
    strides = {-(-size // other) for size, other in zip(given[2:], target[2:], strict=True)}
    stride = max(strides)
    if any(-(-size // stride) != other for size, other in zip(given[2:], target[2:], strict=True)):
        return None
    layer = _recipe(_CONVOLUTIONS[len(given)], given[1], target[1], 1)
    return layer | {"kwargs": {"stride": stride}} if stride > 1 else layer


def producer(
    graph: ModelGraph, sides: Sequence[Node], shapes: Sequence[Shape], before: Sequence[Any]
) -> tuple[Node, dict[str, Any]] | None:
    """Return the layer to change so that the sides of a product fit, and its new arguments.

    The layer is the last one of the gate. The gate is the side that was broadcast in the base, or
    else the only side that is unchanged. Returns None if there is no gate, if more than its width
    differs, or if other nodes read that layer, too.
    """
    if len(before) != 2 or None in before:
        return None
    if before[0] != before[1]:
        # The side that was broadcast is a gate, which has no size of its own.
        gate = min((0, 1), key=lambda side: prod(before[side]))
    else:
        same = [own == shape for own, shape in zip(before, shapes, strict=True)]
        if same.count(True) != 1:
            return None
        gate = same.index(True)
    dimension = 1 if len(shapes[0]) > 3 else -1
    size = shapes[1 - gate][dimension]
    node = sides[gate]
    # If the width is right already, something else differs.
    while len(node.users) == 1 and shapes[gate][dimension] != size:
        module = graph.module(node)
        if isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d) and module.groups == 1:
            return node, {"out_channels": size}
        if type(module) is nn.Linear:
            return node, {"out_features": size}
        if len(node.all_input_nodes) != 1 or (module is not None and module.state_dict()):
            return None
        [node] = node.all_input_nodes
    return None


def _recipe(kind: str, *args: int) -> dict[str, Any]:
    return {"make": f"torch.nn:{kind}", "args": list(args), "kwargs": {}}
