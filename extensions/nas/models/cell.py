"""``Cell``: a small graph whose nodes choose their inputs, and an operation for each of them."""

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
    """``nodes`` nodes, each the sum of ``inputs_per_node`` earlier ones, each by its operation.

    ``operations`` are functions by name, each given the index of its input: from 0 the ``inputs``
    inputs of the cell, after them the nodes. So an operation knows whether it reads an input of the
    cell, as one with a stride must. Node n of cell "c" has the choices ``c.n.inputs`` (where there
    is one to make) and ``c.n.op0``, ``c.n.op1`` ..., in the order of its inputs. ``forward`` takes
    the inputs and concatenates the nodes along dimension 1. Cells with one label are alike.

    H. Liu, K. Simonyan, Y. Yang, DARTS: Differentiable Architecture Search, ICLR 2019. Raises
    UsageError for operations without names, for fewer than one node, and for more inputs of a node
    than the cell has.
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
    """The sum of some of the states before it, each by an operation."""

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
        """Choose the inputs that ``candidate`` names."""
        #: The indices of the states that are read.
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

    The state is in it, so that equal names are equal parts: an operation knows what it reads.
    """
    return f"op{slot}_{state}"
