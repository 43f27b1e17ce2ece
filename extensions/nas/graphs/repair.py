"""Shape repair: after mutators, each layer is fitted to its input, or the graph is refused.

Theory of operation. The graph is walked in order with fake tensors, so nothing is computed. At each
layer the rule of its class gives the arguments that fit its input (``insizes``); a layer with other
arguments is made again. An addition whose sides differ gets an adaptor, according to the policy
(``joins``). A product has a gate: the side that was broadcast, else the side that is unchanged. Its
last layer is changed to fit the other side. The walk has already passed that layer, so it starts
again.

Each change is a primitive in the log, so a replay repairs nothing. A repair with several solutions
is refused, with the names of the nodes and the solutions. So is a model whose outputs have other
shapes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import Node

from ....base.errors import UsageError
from .insizes import RULES, Ambiguous
from .joins import POLICIES, adaptor, is_addition, is_product, joined_along, producer
from .primitives import ModelGraph, Primitive, above
from .shapes import Shapes, output_shapes, shapes_of

#: Most walks through one graph. Every walk but the last has changed the layer of a gate.
WALKS = 20
REPAIR = "repair"


@dataclass(frozen=True, slots=True)
class Repair:
    """The policy of shape repair.

    ``additions``: policy for additions whose sides have different shapes. "shortcut" adapts the
    side that is computed first, so the result has the shape of the other side. "branch" adapts the
    side that is computed last. "refuse" raises an error. With the first two, concatenated images
    get the size of the smallest one, if they shrink by whole numbers. ``carry``: layers that are
    made again, by mutators or repairs, take the weights that they have in common with the old
    layers. Raises UsageError for an unknown policy.
    """

    additions: str = "shortcut"
    carry: bool = False

    def __post_init__(self) -> None:
        if self.additions not in POLICIES:
            allowed = f"one of {', '.join(POLICIES)}"
            raise UsageError.refuse("additions", self.additions, allowed)
        if not isinstance(self.carry, bool):
            raise UsageError.refuse("carry", self.carry, "True or False")


@dataclass(frozen=True, slots=True)
class Before:
    """Facts about the base, taken before mutators, by the names of its nodes."""

    #: The shape of each node's value: None if it is no tensor, and a list for the output.
    shapes: Mapping[str, Any]
    #: The shapes of each node's inputs.
    read: Mapping[str, list[Any]]
    #: The number of rows of each embedding.
    rows: Mapping[str, int]


def before_of(graph: ModelGraph, inputs: Sequence[Any]) -> Before:
    """Return the facts about the base. Raises torch's error if it does not run on ``inputs``."""
    shapes = shapes_of(graph.model, graph.graph, inputs)
    read, rows = {}, {}
    for node in graph.graph.nodes:
        read[node.name] = [shapes[each.name] for each in node.all_input_nodes]
        if isinstance(module := graph.module(node), nn.Embedding):
            rows[node.name] = module.num_embeddings
    return Before(shapes, read, rows)


def repaired(graph: ModelGraph, inputs: Sequence[Any], before: Before, policy: Repair) -> None:
    """Change layers and add adaptors until all layers of the graph fit their inputs.

    Raises UsageError with names of nodes, mutators and solutions if that is impossible.
    """
    for _ in range(WALKS):
        if _Walk(graph, inputs, before, policy).done():
            return
    mutators = ", ".join(dict.fromkeys(each.by for each in graph.log if each.by != REPAIR))
    raise UsageError(
        f"the graph that {mutators} made cannot be repaired: after {WALKS} walks some product still"
        " has sides that do not fit",
        mutators,
    )


class _Walk:
    """One walk through the graph, in which each layer is fitted to its input."""

    def __init__(
        self, graph: ModelGraph, inputs: Sequence[Any], before: Before, policy: Repair
    ) -> None:
        self._graph = graph
        self._before = before
        self._policy = policy
        self._shapes = Shapes(graph.model, inputs)
        #: The first node that calls a layer, by the layer's name.
        self._first: dict[str, str] = {}

    def done(self) -> bool:
        """Walk the graph; return False if a layer that was already passed has changed."""
        for node in list(self._graph.graph.nodes):
            try:
                if not self._fit(node):
                    return False
                self._shapes.run(node)
                self._check(node)
            except Ambiguous as error:
                raise self._refused(node, str(error)) from error
            except UsageError as error:
                raise self._refused(node, str(error)) from error
            except Exception as error:  # whatever torch raises for shapes
                reason = str(error).strip().partition("\n")[0]
                raise self._refused(node, f"{type(error).__name__}: {reason}") from error
        return True

    def _fit(self, node: Node) -> bool:
        """Change ``node`` or adapt its input, if needed. Return False if a new walk is needed."""
        module = self._graph.module(node)
        if module is not None:
            self._fit_layer(node, module)
        elif (along := joined_along(node)) is not None:
            self._concatenate(node, along)
        elif is_addition(node) or is_product(node):
            sides = node.all_input_nodes
            shapes = [self._shapes.of(each) for each in sides]
            if len(sides) == 2 and None not in shapes and self._differ(node, shapes):
                return self._join(node, sides, shapes)
        return True

    def _fit_layer(self, node: Node, module: nn.Module) -> None:
        if type(module) is nn.Embedding:
            self._fit_embedding(node, module)
        rule = RULES.get(type(module))
        if rule is None:
            return
        args, kwargs = self._shapes.arguments(node)
        inputs = [*args, *kwargs.values()][: 3 if type(module) is nn.MultiheadAttention else 1]
        changes = rule(module, *(tuple(each.shape) for each in inputs if isinstance(each, Tensor)))
        first = self._first.setdefault(str(node.target), node.name)
        if changes and first != node.name:
            raise Ambiguous(f"it is also called at {first}, with another size")
        if changes:
            self._apply("update", node, arguments=changes)

    def _fit_embedding(self, node: Node, module: nn.Embedding) -> None:
        """Keep at least as many rows as in the base, since mutators do not change the tokens."""
        rows = self._before.rows.get(node.name, 0)
        if module.num_embeddings < rows:
            self._apply("update", node, arguments={"num_embeddings": rows})

    def _differ(self, node: Node, shapes: Sequence[Any]) -> bool:
        """Return True if the two sides of an addition or a product must be adapted.

        They must be if a size differs, unless that size is broadcast: one side has size 1 there,
        and the sizes differed in the base, too. Sides that are not known from the base must be
        equal.
        """
        one, other = shapes
        if len(one) != len(other):
            return False
        shapes_before = self._before.read.get(node.name, [])
        if len(shapes_before) != 2 or any(
            each is None or len(each) != len(one) for each in shapes_before
        ):
            return bool(one != other)
        return any(
            now != then and (before == after or 1 not in {now, then})
            for now, then, before, after in zip(one, other, *shapes_before, strict=True)
        )

    def _concatenate(self, node: Node, along: int) -> None:
        """Bring all inputs to the image size of the smallest one, by adaptors with strides."""
        shapes = {each: self._shapes.of(each) for each in node.all_input_nodes}
        if along != 1 or None in shapes.values() or len({*map(len, shapes.values())}) > 1:
            return
        smallest = min((shape[2:] for shape in shapes.values()), key=prod)
        parts = ", ".join(f"{each.name} {shape}" for each, shape in shapes.items())
        for side, shape in shapes.items():
            if shape[2:] != smallest:
                layer = adaptor(shape, (*shape[:2], *smallest))
                if layer is None or self._policy.additions == "refuse":
                    raise Ambiguous(f"what it joins differs in more than channels: {parts}")
                self._adapt(side, node, layer)

    def _adapt(self, side: Node, reader: Node, layer: Mapping[str, Any]) -> None:
        name = self._apply("insert", side, layer=layer, reader=reader.name)
        self._shapes.run(self._graph.node(name))

    def _join(self, node: Node, sides: Sequence[Node], shapes: Sequence[Any]) -> bool:
        names = " and ".join(
            f"{each.name} {shape}" for each, shape in zip(sides, shapes, strict=True)
        )
        if is_product(node):
            adaption = producer(self._graph, sides, shapes, self._before.read.get(node.name, []))
            if adaption is None:
                raise Ambiguous(f"its sides do not fit: {names}; give one of them another size")
            layer, changes = adaption
            self._apply("update", layer, arguments=changes)
            return False
        if self._policy.additions == "refuse":
            raise Ambiguous(
                f"its sides differ: {names}; additions='shortcut' or 'branch' would adapt one"
            )
        order = {each: index for index, each in enumerate(self._graph.graph.nodes)}
        late = max((0, 1), key=lambda side: order[sides[side]])
        side = 1 - late if self._policy.additions == "shortcut" else late
        found_layer = adaptor(shapes[side], shapes[1 - side])
        if found_layer is None:
            side, found_layer = 1 - side, adaptor(shapes[1 - side], shapes[side])
        if found_layer is None:
            raise Ambiguous(f"its sides differ in more than channels: {names}; rewire one of them")
        self._adapt(sides[side], node, found_layer)
        return True

    def _check(self, node: Node) -> None:
        """Raise ``Ambiguous`` for an output with another shape, and for a view that no longer fits.

        The code of ``forward`` may contain the sizes of a view as numbers, which are not repaired.
        """
        before = self._before.shapes.get(node.name)
        if node.op == "output":
            now = output_shapes(self._shapes, node)
            if now != before:
                raise Ambiguous(
                    f"the model gives {now}, and gave {before}: keep the last layer's size"
                )
        elif node.target in {"view", "reshape", torch.reshape} and before:
            now, first = self._shapes.of(node), node.all_input_nodes[0]
            came = self._before.read[node.name][0]
            if came[0] == before[0] and now[0] != self._shapes.of(first)[0]:
                raise Ambiguous(
                    f"it gives {now}, and gave {before}: forward has its sizes as numbers;"
                    " flatten(1) or x.shape would follow"
                )

    def _apply(self, operation: str, node: Node, **values: Any) -> str:
        return self._graph.apply(Primitive(operation, node.name, REPAIR, values))

    def _refused(self, node: Node, reason: str) -> UsageError:
        """Return an error that names the mutators of what ``node`` depends on, or else all."""
        names = {each.name for each in above([node])}
        log = [each for each in self._graph.log if each.by != REPAIR]
        mutators = dict.fromkeys(each.by for each in log if each.at in names)
        blamed = ", ".join(mutators or dict.fromkeys(each.by for each in log))
        module = self._graph.module(node)
        place = node.name if module is None else f"{node.target} ({type(module).__name__})"
        return UsageError(f"what {blamed} made cannot be repaired at {place}: {reason}", blamed)
