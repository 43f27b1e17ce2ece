"""Layers that make choices: one of several modules, some of several inputs, a number of blocks.

Each is a module that contains only its chosen parts. The names in its state dict contain the key of
the chosen candidate (``op.conv3.weight``), so parts with equal names are equal in all
architectures. A candidate given as a function is made only if it is chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import combinations
from typing import Any

import torch
from torch import Tensor, nn

from ....base.errors import UsageError
from .choices import answers, listed

#: A module, or a function without arguments that makes one.
Candidate = nn.Module | Callable[[], nn.Module]


class LayerChoice(nn.Module):
    """A choice of one of ``candidates``: modules, or functions that make one, by name or in a list.

    A function is called only if its candidate is chosen: give functions if candidates are large, or
    make choices themselves. ``forward`` is that of the chosen module. Raises UsageError for no
    candidates, and for a name that a module cannot have.
    """

    def __init__(
        self, candidates: Mapping[str, Candidate] | Sequence[Candidate], label: str
    ) -> None:
        super().__init__()
        if isinstance(candidates, Mapping):
            by_key: dict[Any, Candidate] = dict(candidates)
        else:
            by_key = dict(enumerate(listed(label, candidates)))
        for key in by_key:
            if str(key) in {"", "key", *dir(self)} or "." in str(key):
                allowed = "a string without dots that is no attribute of a module"
                raise UsageError.refuse(f"a candidate's name in {label!r}", key, allowed)
        answers_now = answers(label)
        self.label = label
        #: The name of the chosen candidate, or its index in the list.
        self.key = answers_now.choose(label, listed(label, list(by_key)), seen=False)
        for key, candidate in by_key.items():
            make = partial(_made, candidate, f"candidate {key!r} of {label!r}")
            module = answers_now.part(label, [key], make, key == self.key)
            if module is not None:
                self.add_module(str(key), module)

    @property
    def _choice(self) -> str:
        """The choice as text, for outlines."""
        return f"{self.label} = {self.key}"

    @property
    def chosen(self) -> nn.Module:
        """The module that was chosen."""
        return self.get_submodule(str(self.key))

    def take(self, candidate: Any) -> None:
        """Choose another candidate. This works in a super-net, which contains all of them."""
        self.key = candidate

    def forward(self, *inputs: Any, **named: Any) -> Any:
        """Return the result of the chosen module."""
        return self.chosen(*inputs, **named)


class InputChoice(nn.Module):
    """A choice of ``n_chosen`` out of ``n_candidates`` inputs, which are reduced to one value.

    ``reduction``: "sum", "mean", "concat" (along dimension 1) or "none" (a list). The chosen inputs
    keep their order. A candidate is the index of an input, or several as in "0+2". Raises
    UsageError for other values.
    """

    def __init__(
        self, n_candidates: int, n_chosen: int = 1, *, reduction: str = "sum", label: str
    ) -> None:
        super().__init__()
        if reduction not in _REDUCTIONS:
            allowed = f"one of {', '.join(_REDUCTIONS)}"
            raise UsageError.refuse(f"the reduction of {label!r}", reduction, allowed)
        self.n_candidates = n_candidates
        self.reduction = reduction
        self.label = label
        self._sets = input_sets(n_candidates, n_chosen, label)
        self.take(answers(label).choose(label, list(self._sets), seen=False))

    def take(self, candidate: Any) -> None:
        """Choose the inputs that ``candidate`` names."""
        #: The indices of the chosen inputs.
        self.chosen = self._sets[candidate]

    def forward(self, inputs: Sequence[Tensor]) -> Any:
        """Return the chosen ``inputs``, reduced to one value."""
        if len(inputs) != self.n_candidates:
            raise ValueError(f"{len(inputs)} inputs for a choice of {self.n_candidates}")
        return _REDUCTIONS[self.reduction]([inputs[index] for index in self.chosen])


class Repeat(nn.Module):
    """A row of blocks, each made by ``block(index)``; indices start at 0.

    ``depth`` is the number of blocks, or a range (least, most), from which it is chosen under the
    name ``label``. A block beyond the least depth, and the choices in it, exist only if the depth
    is large enough. Raises UsageError for a depth below 0, an empty range, a range without a label,
    and a module as ``block``, since all blocks would be the same module.
    """

    def __init__(
        self, block: Callable[[int], nn.Module], depth: int | tuple[int, int], label: str = ""
    ) -> None:
        super().__init__()
        self.label = label
        if isinstance(block, nn.Module) or not callable(block):
            hint = "a function of the index, which makes a new block each time"
            raise UsageError.refuse(f"the block of Repeat {label!r}", type(block).__name__, hint)
        if isinstance(depth, int):
            if depth < 0:
                raise UsageError.refuse(f"the depth of Repeat {label!r}", depth, ">= 0")
            self.depth = depth
            for index in range(depth):
                self.add_module(str(index), block(index))
            return
        match depth:
            case (int(least), int(most)) if 0 <= least <= most:
                pass
            case _:
                allowed = "a number, or (least, most) with 0 <= least <= most"
                raise UsageError.refuse(f"the depth of Repeat {label!r}", depth, allowed)
        depths = list(range(least, most + 1))
        answers_now = answers(label)
        #: Number of blocks.
        self.depth = answers_now.choose(label, listed(label, depths), seen=False)
        for index in range(most):
            enough = [each for each in depths if each > index]
            make = partial(_made, partial(block, index), f"block {index} of {label!r}")
            module = answers_now.part(label, enough, make, self.depth in enough)
            if module is not None:
                self.add_module(str(index), module)

    def take(self, candidate: int) -> None:
        """Choose another depth. This works in a super-net, which contains all blocks."""
        self.depth = candidate

    def __len__(self) -> int:
        return self.depth

    def forward(self, value: Any) -> Any:
        """Return ``value``, passed through all blocks."""
        for index in range(self.depth):
            value = self.get_submodule(str(index))(value)
        return value


def input_sets(n_candidates: int, n_chosen: int, label: str) -> dict[Any, tuple[int, ...]]:
    """Return all sets of ``n_chosen`` out of ``n_candidates`` indices, by the candidate's name."""
    if not isinstance(n_candidates, int) or n_candidates < 1:
        allowed = "a whole number >= 1"
        raise UsageError.refuse(f"the inputs of {label!r}", n_candidates, allowed)
    if not isinstance(n_chosen, int) or not 1 <= n_chosen <= n_candidates:
        allowed = f"1 to {n_candidates}, the number of its inputs"
        raise UsageError.refuse(f"the number of inputs chosen in {label!r}", n_chosen, allowed)
    sets = combinations(range(n_candidates), n_chosen)
    return {each[0] if n_chosen == 1 else "+".join(map(str, each)): each for each in sets}


def _made(candidate: Candidate, noun: str) -> nn.Module:
    if isinstance(candidate, nn.Module):
        return candidate
    allowed = "a torch.nn.Module, or a function that makes one"
    if not callable(candidate):
        raise UsageError.refuse(noun, candidate, allowed)
    try:
        module = candidate()
    except Exception as error:
        error.add_note(f"in {noun}")
        raise
    if not isinstance(module, nn.Module):
        raise UsageError.refuse(noun, module, allowed)
    return module


_REDUCTIONS: dict[str, Callable[[list[Tensor]], Any]] = {
    "sum": sum,
    "mean": lambda chosen: sum(chosen) / len(chosen),
    "concat": lambda chosen: torch.cat(chosen, 1),
    "none": list,
}
