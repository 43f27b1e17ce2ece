"""The state of a group's trials when an epoch begins, to which they return if it went wrong."""

from __future__ import annotations

import copy
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

    from .group import Group
    from .stacks import Stack


class Snapshot:
    """Copies of all that an epoch changes before its end. Only then a schedule changes."""

    def __init__(self, group: Group) -> None:
        self._rows = {id(run): k for k, run in enumerate(group.runs)}
        self._epochs = [run.epoch for run in group.runs]
        self._options = [
            [{n: v for n, v in each.items() if n != "params"} for each in run.optimizer.param_groups]
            for run in group.runs
        ]
        self._stacks = {name: _copies(stack) for name, stack in _stacks(group).items()}
        self._fresh = set() if group.optimiser is None else set(group.optimiser.fresh)
        self._own: list[Any] = []
        if group.optimiser is None:
            self._own = [copy.deepcopy(run.optimizer.state_dict()) for run in group.runs]

    def restore(self, group: Group, left: Collection[int]) -> None:
        """Bring the trials of ``group``, which are some of those from the start, back to it.

        They are ready to go on alone. Those in ``left`` have memory of their own.
        """
        rows = [self._rows[id(run)] for run in group.runs]
        for name, stack in _stacks(group).items():
            for flat, copied in zip(stack.flats.values(), self._stacks[name], strict=True):
                flat.copy_(copied[rows])
        for run, at in zip(group.runs, rows, strict=True):
            if id(run) in left:
                continue
            run.epoch = self._epochs[at]
            if self._own:
                run.optimizer.load_state_dict(self._own[at])
            for options, own in zip(run.optimizer.param_groups, self._options[at], strict=True):
                options.update(own)
        if group.optimiser is not None:
            group.optimiser.fresh = {k for k, at in enumerate(rows) if at in self._fresh}
            group.optimiser.dissolve()


def _stacks(group: Group) -> dict[str, Stack]:
    state = {} if group.optimiser is None else group.optimiser.state
    return {"": group.weights, **state}


def _copies(stack: Stack) -> list[Tensor]:
    return [flat.clone() for flat in stack.flats.values()]


