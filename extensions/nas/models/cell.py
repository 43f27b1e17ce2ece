"""``Cell``: a small graph whose nodes choose their inputs, and an operation for each input."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ....base.errors import UsageError
from .choices import answers
from .layers import LayerChoice, input_sets


class Cell(nn.Module):
    """A cell of ``nodes`` nodes. Each node adds the results of operations on chosen inputs.

    A node reads ``inputs_per_node`` inputs of the cell or earlier nodes. ``operations`` are
    functions by name that make a module. Each is called with the index of the value that the module
    reads: the ``inputs`` inputs of the cell come first, from 0, and then the nodes. So a module
    with a stride can have the stride only for inputs of the cell. Node n of cell "c" has the
    choices ``c.n.inputs`` (unless there is only one set of inputs) and ``c.n.op0``, ``c.n.op1``
    ..., in the order of its inputs. ``forward`` takes the inputs of the cell and concatenates the
    results of all nodes along dimension 1. Cells with the same label make the same choices.

    H. Liu, K. Simonyan, Y. Yang, DARTS: Differentiable Architecture Search, ICLR 2019. Raises
    UsageError for operations without names, for fewer than one node, and for more inputs of a node
    than the cell has inputs.
    """

    def __init__(
        self,
        operations: Mapping[str, Callable[[int], nn.Module]],
        nodes: int,
        *,
        inputs: int = 2,
        inputs_per_node: int = 2,
        label: str,
    ) -> None:
        super().__init__()
        if not isinstance(operations, Mapping) or not operations:
            allowed = "functions of the index of an input, by name"
            raise UsageError.refuse(f"the operations of {label!r}", operations, allowed)
        if not isinstance(nodes, int) or nodes < 1:
            raise UsageError.refuse(f"the nodes of {label!r}", nodes, "a whole number >= 1")
        self.inputs = inputs
        self.nodes = nn.ModuleList(
            Node(operations, inputs + node, inputs_per_node, f"{label}.{node}")
            for node in range(nodes)
        )

    def forward(self, *inputs: Tensor) -> Tensor:
        """Return the outputs of all nodes, concatenated along dimension 1."""
        if len(inputs) != self.inputs:
            raise ValueError(f"{len(inputs)} inputs for a cell with {self.inputs}")
        states = list(inputs)
        for node in self.nodes:
            states.append(node(states))
        return torch.cat(states[self.inputs :], 1)


class Node(nn.Module):
    """A node of a cell: the sum of some of the states before it, each after an operation."""

    def __init__(
        self,
        operations: Mapping[str, Callable[[int], nn.Module]],
        states: int,
        n_chosen: int,
        label: str,
    ) -> None:
        super().__init__()
        self.label = name = f"{label}.inputs"
        self._sets = sets = input_sets(states, n_chosen, name)
        answers_now = answers(name)
        # With one set there is nothing to choose.
        self.take(
            answers_now.choose(name, list(sets), seen=False) if len(sets) > 1 else next(iter(sets))
        )
        for slot in range(n_chosen):
            for state in sorted({each[slot] for each in sets.values()}):
                make = partial(self._operation, operations, state, f"{label}.op{slot}")
                with_state = [key for key, each in sets.items() if each[slot] == state]
                module = answers_now.part(name, with_state, make, self.chosen[slot] == state)
                if module is not None:
                    self.add_module(_name(slot, state), module)

    def take(self, candidate: Any) -> None:
        """Read the states that ``candidate`` names."""
        #: The indices of the states that the node reads.
        self.chosen = self._sets[candidate]

    @staticmethod
    def _operation(
        operations: Mapping[str, Callable[[int], nn.Module]], state: int, label: str
    ) -> LayerChoice:
        candidates = {key: partial(operation, state) for key, operation in operations.items()}
        return LayerChoice(candidates, label)

    def forward(self, states: Sequence[Tensor]) -> Any:
        read = enumerate(self.chosen)
        return sum(self.get_submodule(_name(*each))(states[each[1]]) for each in read)


def _name(slot: int, state: int) -> str:
    """Return the name of the operation in ``slot`` that reads ``state``.

    The name contains the state, because an operation may depend on what it reads. So parts with
    equal names are equal.
    """
    return f"op{slot}_{state}"
