"""The graph of a model and the log of changes to it: six primitives, and nothing else.

Theory of operation. A graph is changed only by ``ModelGraph.apply``. That method takes a primitive,
which is a value that JSON can hold, changes the graph and the modules, and appends the primitive to
the log. Mutators, repairs and replays all use it. So a log applied to the same base gives the same
graph, and documents how the graph was made. The graph names new nodes deterministically.

Modules that are not touched stay the same objects under the same names. A replaced or updated one
keeps its name; a new one is ``mutated.NAME``.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import nn
from torch.fx import Graph, Node

from ....base.errors import UsageError
from .layers import carried, made, rebuilt

#: The name of the submodule that contains new modules.
ADDED = "mutated"
_JOINED: dict[str, Callable[[Node, Node], tuple[Any, tuple[Any, ...]]]] = {
    "add": lambda one, other: (operator.add, (one, other)),
    "cat": lambda one, other: (torch.cat, ([one, other], 1)),
}


@dataclass(frozen=True, slots=True)
class Primitive:
    """One change: its operation, its node, its author (a mutator or "repair"), and its values."""

    operation: str
    at: str
    by: str
    values: Mapping[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return the primitive as a JSON object."""
        return asdict(self)

    def __str__(self) -> str:
        values = ", ".join(f"{key}={value!r}" for key, value in self.values.items())
        return f"{self.by}: {self.operation} {self.at}({values})"


class ModelGraph:
    """A model, its graph, and the log of primitives that were applied to it."""

    def __init__(self, model: nn.Module, graph: Graph, *, carry: bool = False) -> None:
        self.model = model
        self.graph = graph
        #: True if a layer that is made again takes the weights that it has in common with the old
        #: one.
        self.carry = carry
        #: The primitives applied, in order.
        self.log: list[Primitive] = []
        #: The authors of each changed node's changes, joined by commas, by the node's name.
        self.changed: dict[str, str] = {}

    def node(self, name: str) -> Node:
        """Return the node of this name. Raises UsageError if there is no such node (any more)."""
        for node in self.graph.nodes:
            if node.name == name:
                return node  # type: ignore[no-any-return]
        raise UsageError(f"{name} is not in the graph (any more)", name)

    def module(self, node: Node) -> nn.Module | None:
        """Return the module that a node calls; None if it calls none."""
        calls_module = node.op == "call_module"
        return self.model.get_submodule(str(node.target)) if calls_module else None

    def calls(self, node: Node) -> list[Node]:
        """Return all nodes that call the same module as ``node``, or else ``node`` alone."""
        if node.op != "call_module":
            return [node]
        return [
            each
            for each in self.graph.nodes
            if each.op == "call_module" and each.target == node.target
        ]

    def apply(self, primitive: Primitive) -> str:
        """Change the graph, note it in the log, and return the name of the resulting node.

        Raises UsageError, naming nodes, if the primitive is impossible. Nothing is changed then.
        """
        node = self.node(primitive.at)
        name, recorded = _OPERATIONS[primitive.operation](self, node, **primitive.values)
        values = dict(primitive.values) | recorded
        self.log.append(Primitive(primitive.operation, primitive.at, primitive.by, values))
        authors = self.changed.get(name, "").split(", ")
        self.changed[name] = ", ".join(dict.fromkeys([*filter(None, authors), primitive.by]))
        return name

    def _replace(
        self, node: Node, *, layer: Mapping[str, Any], carried: Any = None
    ) -> tuple[str, dict[str, Any]]:
        old = self.module(node)
        if old is None and len(node.all_input_nodes) != 1:
            raise _several(node, "a layer in its place reads one value: remove or rewire it")
        self._check_shared(node, old)
        new = made(layer, old)
        recorded = self._carried(old, new, carried)
        if old is None:
            [value] = node.all_input_nodes
            node.op, node.target = "call_module", f"{ADDED}.{node.name}"
            node.args, node.kwargs = (value,), {}
        self._set(str(node.target), new)
        return node.name, recorded

    def _update(
        self, node: Node, *, arguments: Mapping[str, Any], carried: Any = None
    ) -> tuple[str, dict[str, Any]]:
        old = self.module(node)
        if old is None:
            raise UsageError(f"{node.name} is no layer, so it has nothing to update", node.name)
        self._check_shared(node, old)
        new = rebuilt(old, arguments)
        self._set(str(node.target), new)
        return node.name, self._carried(old, new, carried)

    def _insert(
        self, node: Node, *, layer: Mapping[str, Any], reader: str = ""
    ) -> tuple[str, dict[str, Any]]:
        new = made(layer, self.model)
        kind = type(new).__name__.lower()
        name, target = "", ""
        for call in self.calls(node):
            with self.graph.inserting_after(call):
                call_node = self.graph.create_node(
                    "call_module", "", (call,), name=f"{call.name}_{kind}"
                )
            target = target or f"{ADDED}.{call_node.name}"
            name = name or call_node.name
            call_node.target = target
            for user in [each for each in call.users if reader in {"", each.name}]:
                if user is not call_node:
                    user.replace_input_with(call, call_node)
        self._set(target, new)
        return name, {}

    def _remove(self, node: Node) -> tuple[str, dict[str, Any]]:
        calls = self.calls(node)
        for call in calls:
            if len(call.all_input_nodes) != 1:
                raise _several(call, "rewire what reads it instead")
        for call in calls:
            call.replace_all_uses_with(call.all_input_nodes[0])
            self.graph.erase_node(call)
        self._drop(calls)
        return node.name, {}

    def _connect(self, node: Node, *, other: str, how: str) -> tuple[str, dict[str, Any]]:
        source = self._source(node, other)
        if how not in _JOINED:
            raise UsageError.refuse("how to connect", how, f"one of {', '.join(_JOINED)}")
        function, arguments = _JOINED[how](node, source)
        with self.graph.inserting_after(node):
            joined = self.graph.create_node(
                "call_function", function, arguments, name=f"{node.name}_{how}"
            )
        node.replace_all_uses_with(joined, lambda user: user is not joined)
        self._order()
        return joined.name, {}

    def _rewire(self, node: Node, *, index: int, other: str) -> tuple[str, dict[str, Any]]:
        source = self._source(node, other)
        values = node.all_input_nodes
        if not 0 <= index < len(values):
            allowed = f"0 to {len(values) - 1}"
            raise UsageError.refuse(f"the input of {node.name} to rewire", index, allowed)
        old = values[index]
        node.replace_input_with(old, source)
        self._order()
        self._prune(old)
        return node.name, {}

    def _source(self, node: Node, other: str) -> Node:
        """Return the node named ``other``.

        Raises UsageError if ``node`` cannot read that node without a loop.
        """
        if len(self.calls(node)) > 1:
            raise UsageError(
                f"{node.target} is called in several places: {_names(self.calls(node))}", node.name
            )
        source = self.node(other)
        if source.op == "output" or node in above([source]):
            raise UsageError(
                f"{node.name} cannot read {other}, which reads {node.name}: it would be a loop",
                node.name,
            )
        return source

    def _check_shared(self, node: Node, module: nn.Module | None) -> None:
        """Raise UsageError if other modules share parameters with ``module``.

        A change of this module would end the sharing.
        """
        own = {id(each) for each in module.parameters()} if module is not None else set()
        names = [
            name
            for name, each in self.model.named_parameters(remove_duplicate=False)
            if id(each) in own and not name.startswith(f"{node.target}.")
        ]
        if names:
            raise UsageError(
                f"{node.target} shares its weights with {', '.join(names)}: they would be no longer"
                " the same",
                node.name,
            )

    def _carried(self, old: nn.Module | None, new: nn.Module, before: Any) -> dict[str, Any]:
        """Copy common weights from ``old`` to ``new`` if needed; return the sizes for the log.

        They are copied if ``carry`` is set, or if the log of a replayed derivation has sizes
        (``before``).
        """
        if type(old) is not type(new) or old is None or not (self.carry or before):
            return {}
        return {"carried": carried(old, new)}

    def _set(self, target: str, module: nn.Module) -> None:
        path, _, name = target.rpartition(".")
        if path == ADDED and not hasattr(self.model, ADDED):
            self.model.add_module(ADDED, nn.Module())
        self.model.get_submodule(path).register_module(name, module)

    def _drop(self, nodes: Iterable[Node]) -> None:
        """Delete each module of ``nodes`` that no node calls any more, with its parameters."""
        called_targets = {str(each.target) for each in self.graph.nodes if each.op == "call_module"}
        for target in {
            str(each.target) for each in nodes if each.op == "call_module"
        } - called_targets:
            path, _, name = target.rpartition(".")
            delattr(self.model.get_submodule(path), name)

    def _prune(self, node: Node) -> None:
        """Erase ``node`` if nothing reads it, and then its inputs in the same way."""
        erased, open_ = [], [node]
        while open_:
            each = open_.pop()
            if not each.users and each.op not in {"placeholder", "output"} and not each._erased:
                open_ += each.all_input_nodes
                self.graph.erase_node(each)
                erased.append(each)
        self._drop(erased)

    def _order(self) -> None:
        """Move each node that stands before one of its inputs behind that input."""
        ordered: dict[Node, None] = {}

        def visit(node: Node) -> None:
            open_ = [node]
            while open_:
                waiting = [each for each in open_[-1].all_input_nodes if each not in ordered]
                if waiting:
                    open_ += reversed(waiting)
                else:
                    ordered[open_.pop()] = None

        for node in list(self.graph.nodes):
            if node not in ordered:
                visit(node)
        first, *rest = ordered
        for node in rest:
            first.append(node)
            first = node


def above(nodes: Iterable[Node]) -> set[Node]:
    """Return ``nodes`` and all nodes that they read, directly or indirectly."""
    upstream: set[Node] = set()
    open_ = list(nodes)
    while open_:
        node = open_.pop()
        if node not in upstream:
            upstream.add(node)
            open_ += node.all_input_nodes
    return upstream


def _several(node: Node, choices: str) -> UsageError:
    read = _names(node.all_input_nodes) or "nothing"
    return UsageError(f"{node.name} reads {read}: {choices}", node.name)


def _names(nodes: Iterable[Node]) -> str:
    return ", ".join(each.name for each in nodes)


_OPERATIONS: dict[str, Callable[..., tuple[str, dict[str, Any]]]] = {
    "replace": ModelGraph._replace,
    "insert": ModelGraph._insert,
    "remove": ModelGraph._remove,
    "connect": ModelGraph._connect,
    "rewire": ModelGraph._rewire,
    "update": ModelGraph._update,
}
