"""The outline of a model: its graph as plain values, which can be drawn without torch.

Nodes that a picture does not show are left out: those that give sizes of tensors or the mode.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn
from torch.fx import Graph, Node

#: The most parts of an outline. The limit exists because the ledger has an outline for each trial.
MOST = 400
#: Attributes of layers to show: first the pairs of input and output size, then the single ones.
_PAIRS = (
    *(("in_channels", "out_channels"), ("in_features", "out_features")),
    *(("input_size", "hidden_size"), ("num_embeddings", "embedding_dim")),
)
_SINGLE = ("num_features", "normalized_shape", "num_channels", "embed_dim")
#: Functions and methods of tensors whose result is not a tensor.
_SIZES = frozenset({"getattr", "size", "dim", "numel"})


def outlined(model: nn.Module, graph: Graph, changed: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the parts of a model in the order of its graph; empty if more than ``MOST``.

    Each part has its ``text``, the indices of the parts that it ``reads``, the ``choice`` that put
    it there ("" if there is none), and ``by``: the mutators (or "repair") that changed it.
    ``changed`` has these by the names of nodes.
    """
    modules = dict(model.named_modules(remove_duplicate=False))
    indices: dict[Node, int] = {}
    parts: list[dict[str, Any]] = []
    for node in graph.nodes:
        reads = [indices[each] for each in node.all_input_nodes if each in indices]
        if _is_left_out(node, reads):
            continue
        indices[node] = len(parts)
        by = changed.get(node.name, "")
        parts.append(
            {"text": _text(model, node), "reads": reads, "choice": _choice(modules, node), "by": by}
        )
    return parts if len(parts) <= MOST else []


def _is_left_out(node: Node, reads: list[int]) -> bool:
    if node.op == "get_attr":
        return str(node.target).rpartition(".")[2] == "training"
    if node.op in {"call_function", "call_method"}:
        return _name(node) in _SIZES or bool(node.all_input_nodes and not reads)
    return False


def _text(model: nn.Module, node: Node) -> str:
    if node.op == "call_module":
        return layer_words(model.get_submodule(str(node.target)))
    return "input" if node.op == "placeholder" else _name(node)


def _name(node: Node) -> str:
    return str(getattr(node.target, "__name__", node.target))


def layer_words(layer: nn.Module) -> str:
    """Return a short description of a layer, such as ``Conv2d 16→32, 3x3, stride 2``."""
    words = type(layer).__name__
    for before, after in _PAIRS:
        if hasattr(layer, before):
            words += f" {getattr(layer, before)}→{getattr(layer, after, '?')}"
            break
    for name in _SINGLE:
        if hasattr(layer, name):
            words += f" {_times(getattr(layer, name))}"
            break
    if hasattr(layer, "kernel_size"):
        words += f", {_times(layer.kernel_size)}"
        if (stride := _times(getattr(layer, "stride", 1))).strip("1x"):
            words += f", stride {stride}"
    if getattr(layer, "groups", 1) != 1:
        words += f", {layer.groups} groups"
    return words


def _times(sizes: Any) -> str:
    return "x".join(map(str, sizes)) if isinstance(sizes, tuple | list) else str(sizes)


def _choice(modules: Mapping[str, nn.Module], node: Node) -> str:
    """Return the choice of the innermost choosing module that contains ``node``; empty if none."""
    path = str(node.target) if node.op == "call_module" else _module_of(node)
    while path:
        if made_by := getattr(modules.get(path), "_choice", ""):
            return str(made_by)
        path = path.rpartition(".")[0]
    return ""


def _module_of(node: Node) -> str:
    """Return the name of the module whose code computes the node."""
    stack = node.meta.get("nn_module_stack")
    return str(next(reversed(stack.values()))[0]) if stack else ""
