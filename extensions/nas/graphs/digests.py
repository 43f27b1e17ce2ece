"""The canonical digest of a graph: equal for equal architectures, however they were made.

Theory of operation. Nodes and modules are numbered by a walk from the output, so the digest does
not depend on their names or on the order in which they were made. It covers each node's operation,
inputs and called module. Two calls of one module differ from calls of two equal modules, since
shared weights are not equal weights. The sides of an addition or a product are ordered by the nodes
above them, and an ``Identity`` is skipped. The digest covers the values of constant buffers, but
not of weights.
"""

from __future__ import annotations

import hashlib
import json
import operator
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.fx import Graph, Node

from ....base.moved_modules import module_then
from .layers import settings

#: The one name of each commutative operation that has several names.
_ONE: dict[Any, str] = dict.fromkeys((operator.add, torch.add, "add"), "add") | dict.fromkeys(
    (operator.mul, torch.mul, "mul"), "mul"
)


def digest(model: nn.Module, graph: Graph | None) -> str:
    """Return the digest of an architecture: 64 hexadecimal digits."""
    if graph is None:
        return _hash(described(model))
    return _hash(_Walk(model).lines(graph))


def described(module: nn.Module) -> Any:
    """Return the class of a module, its arguments or attributes, shapes and submodules, as JSON.

    The result has the names and shapes of parameters and buffers, but not their values.
    """
    kind = f"{module_then(type(module).__module__)}.{type(module).__qualname__}"
    arguments = settings(module)
    if arguments is not None:
        return [f"torch.nn.{type(module).__name__}", sorted(arguments.items())]
    own = {
        name: _value(value)
        for name, value in vars(module).items()
        if not name.startswith("_") and name != "training"
    }
    parameters = {name: list(each.shape) for name, each in module.named_parameters(recurse=False)}
    buffers = {name: list(each.shape) for name, each in module.named_buffers(recurse=False)}
    parts = {name: described(each) for name, each in module.named_children()}
    return [kind, sorted(own.items()), parameters, buffers, parts]


class _Walk:
    """One walk through a graph from its output."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._kinds: dict[Node, Any] = {}
        self._keys: dict[Node, str] = {}
        self._numbers: dict[Node, int] = {}
        self._identities: dict[int, int] = {}
        self._lines: list[Any] = []

    def lines(self, graph: Graph) -> list[Any]:
        nodes = list(graph.nodes)
        inputs = [each for each in nodes if each.op == "placeholder"]
        self._kinds = {node: self._kind(node) for node in nodes}
        for index, node in enumerate(inputs):
            self._numbers[node] = -1 - index
            self._keys[node] = _hash(["input", index])
        for node in nodes:
            if node not in self._keys and self._is_identity(node):
                self._keys[node] = self._keys[node.all_input_nodes[0]]
            elif node not in self._keys:
                self._keys[node] = _hash([self._kinds[node], self._arguments(node, self._keys)])
        # A node that nothing reads is there for what it does: an operation in place.
        for node in nodes:
            if not node.users and node.op != "placeholder":
                self._visit(node)
        return self._lines

    def _visit(self, last: Node) -> None:
        open_ = [last]
        while open_:
            node = open_[-1]
            waiting = [each for each in self._reads(node) if each not in self._numbers]
            if node in self._numbers or not waiting:
                open_.pop()
                if node not in self._numbers:
                    self._number(node)
            else:
                open_.append(waiting[0])

    def _number(self, node: Node) -> None:
        if self._is_identity(node):
            self._numbers[node] = self._numbers[node.all_input_nodes[0]]
            return
        state = self._held(node)
        identity = None
        if state is not None:
            identity = self._identities.setdefault(id(state), len(self._identities))
        self._numbers[node] = len(self._lines)
        self._lines.append([self._kinds[node], identity, self._arguments(node, self._numbers)])

    def _reads(self, node: Node) -> list[Node]:
        if node.op in {"call_function", "call_method"} and node.target in _ONE:
            return sorted(node.all_input_nodes, key=self._keys.__getitem__)
        return node.all_input_nodes

    def _arguments(self, node: Node, numbers: Mapping[Node, Any]) -> Any:
        arguments = [_argument(each, numbers) for each in node.args]
        if node.op != "output" and node.target in _ONE:
            arguments.sort(key=str)
        return [arguments, sorted((k, _argument(v, numbers)) for k, v in node.kwargs.items())]

    def _kind(self, node: Node) -> Any:
        if node.op == "call_module":
            module = self._model.get_submodule(str(node.target))
            return described(module)
        if node.op == "get_attr":
            attribute = _attribute(self._model, str(node.target))
            if isinstance(attribute, torch.Tensor):
                return ["tensor", list(attribute.shape), str(attribute.dtype), _content(attribute)]
            # The mode is no part of an architecture.
            name = str(node.target).rpartition(".")[2]
            return ["attribute", name, None if name == "training" else _value(attribute)]
        if node.op != "output" and node.target in _ONE:
            return _ONE[node.target]
        return [node.op, _value(node.target)]

    def _held(self, node: Node) -> Any:
        """Return the stateful module or the tensor that ``node`` uses; None if it uses neither."""
        if node.op == "call_module":
            module = self._model.get_submodule(str(node.target))
            return module if [*module.parameters(), *module.buffers()] else None
        attribute = _attribute(self._model, str(node.target)) if node.op == "get_attr" else None
        return attribute if isinstance(attribute, torch.Tensor) else None

    def _is_identity(self, node: Node) -> bool:
        module = node.op == "call_module" and self._model.get_submodule(str(node.target))
        return isinstance(module, nn.Identity) and len(node.all_input_nodes) == 1


def _attribute(model: nn.Module, path: str) -> Any:
    value: Any = model
    for name in path.split("."):
        value = getattr(value, name)
    return value


def _content(tensor: torch.Tensor) -> str:
    """Return a hash of a constant tensor's values; empty for parameters and on the meta device."""
    if isinstance(tensor, nn.Parameter) or tensor.device.type == "meta":
        return ""
    data = tensor.detach().cpu().contiguous().view(torch.uint8) if tensor.dim() else tensor.cpu()
    return hashlib.sha256(str(data.tolist()).encode()).hexdigest()


def _argument(value: Any, numbers: Mapping[Node, Any]) -> Any:
    if isinstance(value, Node):
        return ["node", numbers[value]]
    if isinstance(value, list | tuple):
        return [_argument(each, numbers) for each in value]
    if isinstance(value, dict):
        return sorted((str(key), _argument(each, numbers)) for key, each in value.items())
    if isinstance(value, slice):
        return [
            "slice",
            *(_argument(each, numbers) for each in (value.start, value.stop, value.step)),
        ]
    return _value(value)


def _value(value: Any) -> Any:
    """Return a constant as JSON."""
    if value is None or isinstance(value, bool | int | float | str):
        return [type(value).__name__, repr(value)]
    if isinstance(value, list | tuple):
        return [_value(each) for each in value]
    if isinstance(value, torch.Tensor):
        return [list(value.shape), str(value.dtype), _content(value)]
    if isinstance(value, torch.dtype | torch.device):
        return str(value)
    return _object(value)


def _object(value: Any) -> Any:
    """Return a function's name and code, or any other object's class and attributes, as JSON."""
    if callable(value):
        code = getattr(value, "__code__", None)
        body = hashlib.sha256(code.co_code).hexdigest() if code else ""
        name = getattr(value, "__qualname__", "") or getattr(value, "__name__", "")
        return [getattr(value, "__module__", ""), name or type(value).__qualname__, body]
    attributes = value if isinstance(value, Mapping) else getattr(value, "__dict__", {})
    return [
        type(value).__qualname__,
        sorted((str(name), _value(each)) for name, each in attributes.items()),
    ]


def _hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, default=repr).encode()).hexdigest()
