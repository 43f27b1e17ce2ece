"""The values of a graph's nodes as fake tensors, which have only shapes, computed node by node.

Fake tensors compute nothing. An opaque module whose code needs values is run with random ones.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx import Graph, Node
from torch.fx.node import map_arg
from torch.utils._pytree import tree_flatten, tree_map_only

Shape = tuple[int, ...]


class Shapes:
    """The values of nodes, computed in order, for inputs with the shapes of ``inputs``."""

    def __init__(self, model: nn.Module, inputs: Sequence[Any]) -> None:
        self._model = model
        self._mode = FakeTensorMode(allow_non_fake_inputs=True)
        self._inputs = tree_map_only(Tensor, self._mode.from_tensor, list(inputs))
        self._values: dict[Node, Any] = {}
        self._read = 0

    def of(self, node: Node) -> Any:
        """Return the shape of the value of ``node``, or None if the value is no tensor."""
        value = self._values[node]
        return tuple(value.shape) if isinstance(value, Tensor) else None

    def arguments(self, node: Node) -> tuple[Sequence[Any], Mapping[str, Any]]:
        """Return the values of the arguments of ``node``."""
        args: Sequence[Any] = map_arg(node.args, self._values.__getitem__)
        kwargs: Mapping[str, Any] = map_arg(node.kwargs, self._values.__getitem__)
        return args, kwargs

    def run(self, node: Node) -> None:
        """Compute the value of ``node``. Raises any error that the node's operation raises."""
        args, kwargs = self.arguments(node)
        if node.op == "placeholder":
            value = self._inputs[self._read]
            self._read += 1
        elif node.op == "get_attr":
            value = _attribute(self._model, str(node.target))
            if isinstance(value, Tensor):
                value = self._mode.from_tensor(value)
        elif node.op == "call_module":
            value = self._called(self._model.get_submodule(str(node.target)), args, kwargs)
        else:
            with self._mode, torch.no_grad():
                if node.op == "call_method":
                    first, *rest = args
                    value = getattr(first, str(node.target))(*rest, **kwargs)
                elif node.op == "call_function":
                    value = node.target(*args, **kwargs)  # type: ignore[operator]
                else:
                    [value] = args
        self._values[node] = value

    def _called(self, module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        modes = [(each, each.training) for each in module.modules()]
        module.eval()  # no statistics change, and shapes are the same
        try:
            with self._mode, torch.no_grad():
                return module(*args, **kwargs)
        except Exception:
            if type(module).__module__.startswith("torch.nn."):
                raise
            return self._with_values(module, args, kwargs)
        finally:
            for each, mode in modes:
                each.training = mode

    def _with_values(self, module: nn.Module, args: Any, kwargs: Any) -> Any:
        real = tree_map_only(FakeTensor, _real, (args, dict(kwargs)))
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            value = copy.deepcopy(module)(*real[0], **real[1])
        return tree_map_only(Tensor, self._mode.from_tensor, value)


def shapes_of(model: nn.Module, graph: Graph, inputs: Sequence[Any]) -> dict[str, Any]:
    """Return the shape of each node's value by name; for the output, the shapes of all its tensors.

    Raises the error of ``torch`` if the model does not run on ``inputs``.
    """
    shapes = Shapes(model, inputs)
    by_name: dict[str, Any] = {}
    for node in graph.nodes:
        shapes.run(node)
        by_name[node.name] = shapes.of(node) if node.op != "output" else output_shapes(shapes, node)
    return by_name


def output_shapes(shapes: Shapes, node: Node) -> list[Shape]:
    """Return the shapes of all tensors that the model returns, in a flat list."""
    values, _ = tree_flatten(shapes.arguments(node))
    return [tuple(each.shape) for each in values if isinstance(each, Tensor)]


def _real(value: Tensor) -> Tensor:
    if value.is_floating_point():
        return torch.rand(value.shape, dtype=value.dtype, device=value.device)
    return torch.zeros(value.shape, dtype=value.dtype, device=value.device)


def _attribute(model: nn.Module, path: str) -> Any:
    value: Any = model
    for name in path.split("."):
        value = getattr(value, name)
    return value
